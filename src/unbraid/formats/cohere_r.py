"""Cohere Command R and R+ (2024): calls as a fenced JSON array behind `Action:`, citations as in cohere.py.

    Action: ```json
    [
        {
            "tool_name": "search",
            "parameters": {"q": "tides"}
        }
    ]```<|END_OF_TURN_TOKEN|>

`directly_answer` is the tool that is none. Source: the chat templates at huggingface.co/CohereLabs.
"""

from unbraid.codecs import JsonArray, JsonObject
from unbraid.formats.cohere import CITATION, CITED, TURNS
from unbraid.table import ANY, CONTENT, ENDED, ROLE, Format, calling, text

FENCED_ACTION = text("Action: ```json", "Action:```json", "Action:\n```json", before=ANY, after=ANY, trail="\n")
FENCE_END = text("```", before=ANY, lead="\n")
FENCED = calling(JsonArray(JsonObject(name=("tool_name", "name"), arguments=("parameters", "arguments"), wrap=())))

COHERE_COMMAND_R = Format(
    name="cohere_command_r",
    about="Command R and R+ (2024): calls as a fenced JSON array behind `Action:`; `directly_answer` is the tool that is none",
    aliases=("cohere_command_r_plus",),
    models=("*command-r-v01*", "*command-r-plus*", "*command-r-0*"),
    states={
        CONTENT: {FENCED_ACTION: FENCED, CITED: CONTENT, CITATION: CONTENT},
        FENCED: {FENCE_END: CONTENT},
        ROLE: {},
        ENDED: {},
    },
    turns=TURNS,
)
