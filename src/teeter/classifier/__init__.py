"""Classifiers that campaigns train: label new texts, images or features without the campaign.

==================  ==============================================================================
``classifier``      an encoder and a trained head, which predict classes with probabilities; saved
                    to a folder and loaded again, or written as an ONNX file
``label_files``     label the rows of a file, or the images of a folder, in chunks
==================  ==============================================================================
"""

from teeter.classifier.classifier import (
    Classifier,
    ClassifierHead,
    ClassifierInfo,
    Layer,
    Prediction,
    load_classifier,
    save_classifier,
)
from teeter.classifier.label_files import label_file

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
