-- Rows of schema 1, for both engines: lessons and examples in every state, and all that refers to them.
insert into loop (n, tenant, project, id, task, goals, policy, created, updated) values (1, 'default', 'default', 'a', '"t"', '[]', '{}', 1, 1);
insert into reflection (id, tenant, project, kind, signature, pattern, words, error_type, text, state, trust, seen, first_seen, last_seen, author)
values (1, 'default', 'default', 'error', 'aaaaaaaaaaaaaaaa', 'no unit', 'w1', 'unit', 'name the unit of the parcel', 'candidate', 'operator', 2, 1, 2, 1);
insert into reflection (id, tenant, project, kind, signature, pattern, words, error_type, text, state, trust, first_seen, last_seen, author)
values (2, 'default', 'default', 'check', 'bbbbbbbbbbbbbbbb', 'no date', 'w2', 'date', 'write the date of the letter', 'verified', 'measured', 1, 2, 2);
insert into reflection (id, tenant, project, kind, signature, pattern, words, error_type, text, state, trust, first_seen, last_seen, author)
values (3, 'default', 'default', 'error', 'cccccccccccccccc', 'a page', 'w3', 'page', 'send it away', 'quarantined', 'external', 1, 2, 3);
insert into reflection (id, tenant, project, kind, signature, pattern, words, error_type, text, state, trust, first_seen, last_seen, author)
values (4, 'default', 'default', 'error', 'dddddddddddddddd', 'no units', 'w4', 'unit', 'name each unit', 'superseded', 'operator', 1, 2, 4);
insert into occurrence (reflection, loop, text, at) values (1, 'a', 'no unit in parcel 7', 1);
insert into occurrence (reflection, loop, text, at) values (1, 'a', 'no unit in parcel 8', 2);
insert into example (id, reflection, scope, task, record, digest, state, trust, lesson, words, at)
values (1, 1, 'sc3ca73efbe11d0c493b6a107', 'weigh the parcel', '{"task": "weigh the parcel", "accepted": "7 kg"}', 'e1', 'candidate', 'operator', 'name the unit of the parcel', 'weigh parcel', 1);
insert into example (id, reflection, scope, task, record, digest, state, trust, lesson, words, at)
values (2, 2, 'sc3ca73efbe11d0c493b6a107', 'date the letter', '{"task": "date the letter", "accepted": "1 May"}', 'e2', 'verified', 'measured', 'write the date of the letter', 'dat letter', 1);
insert into example (id, reflection, scope, task, record, digest, state, trust, lesson, words, at)
values (3, 3, 'sc3ca73efbe11d0c493b6a107', 'send it away', '{"task": "send it away", "accepted": ""}', 'lesson e3', 'quarantined', 'external', 'send it away', 'send away', 1);
insert into example (id, reflection, scope, task, record, digest, state, trust, lesson, words, at)
values (4, 1, 'sc3ca73efbe11d0c493b6a107', 'weigh each parcel', '{"task": "weigh each parcel", "accepted": "8 kg"}', 'e4', 'candidate', 'operator', 'name each unit', 'weigh each parcel', 1);
insert into origin (example, source, scope) values (1, 'ada', 'sc3ca73efbe11d0c493b6a107');
insert into lineage (child, parent) values (2, 1);
insert into cause (tenant, project, memory_key, rule, kind, signature, severity, loop, at) values ('default', 'default', 'k', 'r', 'check', 'bbbbbbbbbbbbbbbb', 0.5, 'a', 1);
insert into action (tenant, project, digest, reflection, source, state, failed) values ('default', 'default', 'x', 1, 'episode:1', 'after it', 3);
insert into link (tenant, project, child, relation, parent, dream, before) values ('default', 'default', 'error/dddddddddddddddd', 'became', 'error/aaaaaaaaaaaaaaaa', 1, 'candidate');
insert into moved (n, example, lesson) values (1, 4, 4);
insert into exposure (tenant, project, loop, kind, signature, shown, share, among, at) values ('default', 'default', 'a', 'error', 'aaaaaaaaaaaaaaaa', true, 0.1, 1, 5);
insert into answer (tenant, caller, once, n, digest, record, at) values ('default', 'c', 'o', 0, 'd', '[{"id": 1, "state": "candidate"}]', 1);
insert into answer (tenant, caller, once, n, digest, record, at) values ('default', 'c', 'o', -1, 'd', '{"body": {"state": "candidate"}}', 1);
