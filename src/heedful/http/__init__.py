"""The service: the library's own verbs over HTTP. `app.application(setup)` is all of it."""
