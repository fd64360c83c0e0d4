"""heedful in agents of other frameworks: a module a framework.

A module imports its framework and the core, nothing else, and is imported by its own
name, such as `heedful_frameworks.langchain`. No framework is pinned. An adapter for
another framework drives the `heedful.integrations.Attempts` of each run.
"""
