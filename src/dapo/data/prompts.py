"""From a problem to prompt tokens: the recipe's template and messages, then the model's chat template.

Both templates are Jinja in a sandbox; a problem's text is data and never a template.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dapo.types import Problem


class ChatTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used here."""

    chat_template: Any

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...


class Prompter:
    """Renders problems for one tokenizer. `messages`: earlier turns as (role, content)."""

    def __init__(self, tokenizer: ChatTokenizer, template: str, messages: Sequence[tuple[str, str]]) -> None:
        if not tokenizer.chat_template:
            raise ValueError(
                "model.path: the tokenizer has no chat template; add chat_template.jinja to the model folder"
            )
        try:
            self._template = ImmutableSandboxedEnvironment(undefined=StrictUndefined).from_string(template)
        except TemplateError as error:
            raise ValueError(f"data.template is not a Jinja template: {error}") from None
        self._tokenizer = tokenizer
        self._messages = [{"role": role, "content": content} for role, content in messages]

    def ids(self, problem: Problem) -> tuple[int, ...]:
        """Token ids of the whole prompt, up to where the response begins. Errors: ValueError if the template fails."""
        try:
            content = self._template.render(problem=problem.text, id=problem.id, family=problem.family)
        except TemplateError as error:
            raise ValueError(f"data.template fails on problem {problem.id}: {error}") from None
        turns = [*self._messages, {"role": "user", "content": content}]
        ids = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=False)
        return tuple(int(i) for i in ids)


def fit(
    problems: Sequence[Problem], prompter: Prompter, max_prompt_tokens: int, drop: bool
) -> tuple[list[tuple[Problem, tuple[int, ...]]], list[Problem]]:
    """Problems with their prompt ids, and those dropped because their prompt is longer than `max_prompt_tokens`.

    Errors: ValueError naming the first such problem if not `drop`, or if none is left.
    """
    kept, dropped = [], []
    for problem in problems:
        ids = prompter.ids(problem)
        if len(ids) <= max_prompt_tokens:
            kept.append((problem, ids))
        elif drop:
            dropped.append(problem)
        else:
            raise ValueError(
                f"data.max_prompt_tokens = {max_prompt_tokens}: the prompt of {problem.id} has {len(ids)} tokens; raise "
                f'it or set data.overlong_prompts = "drop"'
            )
    if not kept:
        raise ValueError(
            f"data.max_prompt_tokens = {max_prompt_tokens}: all {len(dropped)} prompts are longer and were dropped"
        )
    return kept, dropped
