"""How the body of a call is written: one file per syntax, each with its reader and its writer."""

from unbraid.codecs.choice import Choice
from unbraid.codecs.dsl import Dsl
from unbraid.codecs.elements import Elements
from unbraid.codecs.json_arguments import JsonArguments
from unbraid.codecs.json_calls import JsonArray, JsonObject
from unbraid.codecs.key_value_tags import KeyValueTags
from unbraid.codecs.keyed import KeyedArray
from unbraid.codecs.name_then_json import NameThenJson
from unbraid.codecs.python import PythonCalls
from unbraid.codecs.raw_text import RawText
from unbraid.codecs.repetition import Repetition
from unbraid.codecs.word import WordThenJson
from unbraid.codecs.xml_parameters import XmlParameters
from unbraid.codecs.xtml import Xtml

__all__ = [
    "Choice", "Dsl", "Elements", "JsonArguments", "JsonArray", "JsonObject", "KeyValueTags", "KeyedArray", "NameThenJson", "PythonCalls",
    "RawText", "Repetition", "WordThenJson", "XmlParameters", "Xtml",
]  # fmt: skip
