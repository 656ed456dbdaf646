"""How the body of a call is written: one file per syntax, each with its reader and its writer."""

from unbraid.codecs.choice import Choice
from unbraid.codecs.dsl import Dsl
from unbraid.codecs.json import JsonArguments, JsonArray, JsonObject, NameThenJson
from unbraid.codecs.python import PythonCalls, RawText
from unbraid.codecs.repetition import Repetition
from unbraid.codecs.tags import KeyValueTags, XmlParameters
from unbraid.codecs.word import WordThenJson

__all__ = [
    "Choice", "Dsl", "JsonArguments", "JsonArray", "JsonObject", "KeyValueTags", "NameThenJson", "PythonCalls", "RawText", "Repetition",
    "WordThenJson", "XmlParameters",
]  # fmt: skip
