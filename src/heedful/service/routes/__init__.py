"""The routes of the service, one module for each group."""

from __future__ import annotations

from fastapi import APIRouter

from heedful.service.routes import compatible, loops, memory, operations

_ROUTE_MODULES = (operations, loops, memory, compatible)
# All routers of the modules, in the order in which the application includes them.
ROUTERS: tuple[APIRouter, ...] = tuple(
    value
    for module in _ROUTE_MODULES
    for value in vars(module).values()
    if type(value) is APIRouter
)
