-- name: insert_episode
insert into episode (tenant, project, digest, name, session, outcome, record, at)
values (:tenant, :project, :digest, :name, :session, :outcome, :record, :now)
on conflict (tenant, project, digest) do nothing;

-- name: take_episode
-- One that nobody is at work on, the oldest first; of those tried since :before none, nor one without a record.
-- A clock may be set back.
update episode set state = 'waiting', tries = tries + 1, taken = :now
where id = (
  select id from episode
  where tenant = :tenant and project = :project and state <> 'reflected' and (:digest = '' or digest = :digest)
    and taken < :before and (:digest <> '' or record <> '{}')
    and not (state = 'waiting' and taken between :now - :lease and :now + :lease)
  order by at, id limit 1
)
returning digest, name, session, outcome, state, tries, error, record, at;

-- name: episodes_left
-- Those that wait and that nobody is at work on, the oldest first.
select digest from episode
where tenant = :tenant and project = :project and state = 'waiting' and record <> '{}'
  and not (taken between :now - :lease and :now + :lease)
order by at, id limit :limit;

-- name: beat_episode
update episode set taken = :now
where tenant = :tenant and project = :project and digest = :digest and state = 'waiting';

-- name: forget_record
-- An episode that is revoked as a source; that it was reflected on stays known, so that it is not again.
update episode set record = '{}', name = '', session = '', error = ''
where tenant = :tenant and project = :project and state = 'reflected' and 'episode:' || substr(digest, 1, 16) = :source;

-- name: episode_state
select state from episode where tenant = :tenant and project = :project and digest = :digest;

-- name: settle_episode
update episode set state = :state, error = :error, taken = case when :state = 'waiting' then 0 else taken end
where tenant = :tenant and project = :project and digest = :digest and state <> 'reflected'
returning id;

-- name: newest_episodes
select digest, name, session, outcome, state, tries, error, record, at from episode
where tenant = :tenant and project = :project and (:state = '' or state = :state)
order by at desc, id desc limit :limit;

-- name: episodes_before
select digest, name, session, outcome, state, tries, error, '{}' as record, at from episode
where tenant = :tenant and project = :project and (:state = '' or state = :state)
  and (at < :before or (at = :before and digest < :digest))
order by at desc, digest desc limit :limit;

-- name: count_episodes
select state, count(*) as n from episode where tenant = :tenant and project = :project group by state;

-- name: insert_link
insert into link (tenant, project, child, relation, parent, at)
values (:tenant, :project, :child, :relation, :parent, :now)
on conflict do nothing;

-- name: known_examples
select digest from example where scope = :scope and digest in (select value from json_each(:digests));

-- name: clear_episodes
delete from episode where tenant = :tenant and project = :project;
