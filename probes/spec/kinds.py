"""The union of a family's components, looked up in the registry when a spec is validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from probes.component import Component
from probes.errors import closest, nearest
from probes.plugins import PluginError, find, is_granted
from probes.registry import component, kinds

PLUGIN: JsonSchemaValue = {
    "description": "a kind that a plug-in brings",
    "type": "object",
    "properties": {"kind": {"type": "string", "pattern": r"^[^.\s]+(?:\.[^.\s]+)+$"}},
    "required": ["kind"],
}


@dataclass(frozen=True)
class KindOf:
    """Annotates a field that holds one component of a family, selected by its `kind`."""

    family: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        dump = core_schema.plain_serializer_function_ser_schema(self.dump)
        return core_schema.no_info_plain_validator_function(self.pick, serialization=dump)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        known = {kind: component(self.family, kind).__pydantic_core_schema__ for kind in kinds(self.family)}
        if not known:
            return {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
        found = handler(core_schema.tagged_union_schema(known, discriminator="kind"))
        return {**found, "oneOf": [*found["oneOf"], PLUGIN]}

    def dump(self, value: Component) -> dict[str, Any]:
        """The component as plain data without nulls."""
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)

    def pick(self, value: Any) -> Component:
        """The component that a mapping describes."""
        if isinstance(value, Component) and value.family == self.family:
            return value
        context: dict[str, Any] = {"family": self.family}
        if not isinstance(value, dict) or "kind" not in value:
            context["hint"] = self._as_written(value)
            raise PydanticCustomError("kind_missing", "each {family} must be a mapping with a `kind`", context)
        kind = value["kind"]
        if isinstance(kind, str) and "." in kind and self._is_plugin(kind):
            return component(self.family, kind).model_validate(value)
        if not isinstance(kind, str) or kind not in kinds(self.family):
            known = kinds(self.family)
            context |= {"kind": str(kind), "at": ("kind",), "hint": nearest(str(kind), known), "known": closest(str(kind), known)}
            message = "`{kind}` is not a known {family}; specs name kinds and never import code; the nearest are {known}"
            raise PydanticCustomError("kind_unknown", message, context)
        return component(self.family, kind).model_validate(value)

    def _as_written(self, value: Any) -> str:
        """Advice for a value that is not a mapping with a `kind`."""
        if isinstance(value, list) and len(value) == 1:
            return "write it without the brackets of the list"
        if not isinstance(value, str):
            return "add `kind:`"
        if value in kinds(self.family):
            return f"write {{kind: {value}}}"
        for kind in kinds(self.family):
            for name, field in component(self.family, kind).model_fields.items():
                if get_origin(field.annotation) is Literal and value in get_args(field.annotation):
                    return f"write {{kind: {kind}, {field.alias or name}: {value}}}"
        return nearest(value, kinds(self.family)) or "write a mapping such as {kind: " + kinds(self.family)[0] + "}"

    def _is_plugin(self, kind: str) -> bool:
        """Whether a kind comes from an allowed plug-in; raises for a plug-in that is not allowed, or does not work."""
        context: dict[str, Any] = {"kind": kind, "family": self.family, "at": ("kind",)}
        try:
            plugin = find(self.family, kind)
            if plugin is not None and is_granted(kind):
                component(self.family, kind)
        except PluginError as error:
            raise PydanticCustomError("plugin_broken", "{reason}", context | {"reason": str(error)}) from None
        if plugin is not None and not is_granted(kind):
            context |= {"origin": f"{plugin.distribution} {plugin.version}", "hint": f"to allow it: `--allow-plugin {kind}`"}
            message = "{family} `{kind}` comes from the plug-in {origin}; a plug-in must be allowed by name before it is imported"
            raise PydanticCustomError("plugin_not_allowed", message, context)
        return plugin is not None
