"""Takes apart what language models write: reasoning, answer, tool calls and markup, exactly, while it streams.

import unbraid

fmt = unbraid.get_format("qwen3")                          # a name, an alias of vLLM or SGLang, or a model id
vocab = unbraid.Vocabulary.from_file("tokenizer.json")
bound = fmt.bind(vocab)

p = unbraid.Parser(bound, tools=[...], prompt=prompt_ids)
for ids in steps:
    for event in p.feed(ids): ...
for event in p.finish("stop"): ...
p.message                                                  # reasoning, content, tool_calls
"""

from unbraid.boundary import BoundFormat
from unbraid.errors import (
    EngineError,
    FormatNotFound,
    RenderError,
    RequestError,
    SchemaError,
    TableError,
    UnbraidError,
    VocabularyError,
)  # fmt: skip
from unbraid.events import CallArguments, CallEnd, CallStart, Control, Diagnostic, Event, Markup, Text
from unbraid.formats import get_format
from unbraid.message import Message, TextPart, ToolCall
from unbraid.parser import Parser, parse
from unbraid.policy import Policy
from unbraid.render import render, render_ids
from unbraid.schema import Tools
from unbraid.table import Format
from unbraid.vocabulary import Vocabulary

__version__ = "0.1.0"

__all__ = [
    "BoundFormat", "CallArguments", "CallEnd", "CallStart", "Control", "Diagnostic", "EngineError", "Event", "Format",
    "FormatNotFound", "Markup", "Message", "Parser", "Policy", "RenderError", "RequestError", "SchemaError", "TableError", "Text",
    "TextPart", "ToolCall", "Tools", "UnbraidError", "Vocabulary", "VocabularyError", "get_format", "parse", "render", "render_ids",
]  # fmt: skip
