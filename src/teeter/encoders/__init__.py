"""Encoders: functions that turn texts and images into features."""

from teeter.encoders.builtin import Encoder, encode_images, encode_texts, encoder_named

__all__ = ["Encoder", "encode_images", "encode_texts", "encoder_named"]
