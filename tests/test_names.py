"""Whoever comes from vLLM or SGLang finds their parser's name: each one of both leads to a format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import unbraid

NAMES = json.loads((Path(unbraid.__file__).parent / "integrity" / "parser_names.json").read_text(encoding="utf-8"))
ALL = sorted({name for engine in ("vllm", "sglang") for kind in NAMES[engine].values() for name in kind})


def resolves(name: str) -> bool:
    try:
        unbraid.get_format(name)
    except unbraid.UnbraidError:
        return False
    return True


def test_every_parser_name_of_the_engines_leads_to_a_format() -> None:
    assert {name for name in ALL if not resolves(name)} == set()


MODELS = {
    "llm-jp/llm-jp-4-8b-thinking": "llm_jp_4",
    "Qwen/Qwen3-8B": "qwen3",
    "Qwen/Qwen3-30B-A3B-Thinking-2507-FP8": "qwen3_thinking",
    "Qwen/Qwen3-VL-8B-Instruct": "qwen3_instruct",
    "Qwen/Qwen3-Coder-Next": "qwen3_coder",
    "unsloth/Qwen3.5-0.8B-GGUF": "qwen3_5_small",
    "internlm/Intern-S2-Preview": "qwen3_5",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2_5",
    "NousResearch/Hermes-3-Llama-3.1-8B": "qwen2_5",
    "JetBrains/Mellum2-12B-Instruct": "qwen2_5",
    "JetBrains/Mellum2-12B-Thinking": "qwen3",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek_r1",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek_v31",
    "deepseek-ai/DeepSeek-V4-Flash": "deepseek_v4",
    "zai-org/GLM-4.6": "glm45",
    "inclusionAI/Ling-2.6-flash": "glm45",
    "inclusionAI/Ling-3.0-flash": "ling3",
    "zai-org/GLM-5.2": "glm47",
    "moonshotai/Kimi-K2-Thinking": "kimi_k2",
    "moonshotai/Kimi-VL-A3B-Thinking-2506": "kimi_vl",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": "kimi_k2_instruct",
    "stepfun-ai/step3": "step3",
    "stepfun-ai/Step-3.5-Flash": "step3p5",
    "XiaomiMiMo/MiMo-V2-Flash": "mimo_v2_flash",
    "XiaomiMiMo/MiMo-V2.5": "mimo",
    "XiaomiMiMo/MiMo-7B-RL": "think",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron_v3",
    "nvidia/NVIDIA-Nemotron-3-Ultra-500B": "nemotron_v3_ultra",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "nemotron_nano_v2",
    "ibm-granite/granite-3.1-8b-instruct": "granite_31",
    "ibm-granite/granite-3.3-8b-instruct": "granite",
    "ibm-granite/granite-4.0-h-tiny": "granite4",
    "ibm-granite/granite-4.2-8b": "granite_thinking",
    "ibm-granite/granite-20b-functioncalling": "granite_20b_fc",
    "baidu/ERNIE-4.5-21B-A3B-Thinking": "ernie45",
    "tencent/Hunyuan-A13B-Instruct": "hunyuan_a13b",
    "tencent/Hunyuan-7B-Instruct": "hunyuan_a13b",
    "tencent/Hy3-preview": "hy_v3",
    "tencent/Hy4-preview": "hy_v4",
    "internlm/internlm2_5-7b-chat": "internlm2",
    "internlm/Intern-S1": "interns1",
    "ai21labs/AI21-Jamba-Large-1.7": "jamba",
    "ai21labs/AI21-Jamba-Reasoning-3B": "jamba_reasoning",
    "openbmb/MiniCPM5-1B": "minicpm5",
    "openbmb/MiniCPM-V-4_5": "minicpmv",
    "rednote-hilab/dots.llm1.inst": "dots",
    "meituan-longcat/LongCat-Flash-Chat": "longcat",
    "poolside/Laguna-XS.2": "poolside_v1",
    "poolside/Laguna-S-2.1": "poolside_s2_1",
    "LLM360/K2-Horizon": "k2_horizon",
    "ai-sage/GigaChat3.5-10B": "gigachat35",
    "XHToken/Spark-X2.5": "spark25",
    "arcee-ai/Trinity-Mini": "trinity",
    "arcee-ai/Trinity-Large-Thinking": "trinity_large",
    "Hcompany/Holo2-8B": "holo2",
    "ServiceNow-AI/Apriel-1.6-15b-Thinker": "apriel_16",
    "RekaAI/reka-edge-2603": "reka_edge",
    "ByteDance-Seed/Seed-OSS-36B-Instruct": "seed_oss",
    "MiniMaxAI/MiniMax-M2.5": "minimax_m2",
}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_id_leads_to_its_format(model: str) -> None:
    assert unbraid.get_format(model).name == MODELS[model]
