"""Estimators for scikit-learn: `pip install 'sharmix[sklearn]'`."""

try:
    import sklearn as _  # noqa: F401
except ImportError as error:
    raise ImportError("sharmix.integrations.sklearn needs scikit-learn: pip install 'sharmix[sklearn]'") from error

from sharmix.integrations.sklearn.classifier import FenchelYoungClassifier
from sharmix.integrations.sklearn.scaling import SharMiXScaling

__all__ = ["FenchelYoungClassifier", "SharMiXScaling"]
