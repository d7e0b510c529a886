"""Classifiers that campaigns train: label new texts, images or features without the campaign.

==================  ==============================================================================
``classifier``      an encoder and a trained head, which predict classes with probabilities
``model_folder``    save a classifier to a folder, and load it again
``label_files``     label the rows of a file, or the images of a folder, in chunks
``onnx_head``       write the head as an ONNX file
==================  ==============================================================================
"""

from teeter.classifier.classifier import (
    Classifier,
    ClassifierHead,
    ClassifierInfo,
    Layer,
    Prediction,
)
from teeter.classifier.label_files import label_file
from teeter.classifier.model_folder import load_classifier, save_classifier

__all__ = [
    "Classifier",
    "ClassifierHead",
    "ClassifierInfo",
    "Layer",
    "Prediction",
    "label_file",
    "load_classifier",
    "save_classifier",
]
