-- name: insert_exposure
insert or ignore into exposure (tenant, project, loop, kind, signature, shown, share, together, examples, at)
values (:tenant, :project, :loop, :kind, :signature, :shown, :share, :together, :examples, :now);
