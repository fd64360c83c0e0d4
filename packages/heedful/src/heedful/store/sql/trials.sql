-- name: trial_results
-- How often each result occurred. A loop that did not end within a day counts as given up, with the result 0; before, it
-- has none. A loop that was offered no text is no evidence.
select share, shown, case when ended <= at + :day then score when ended is not null or at + :day < :now then 0 end as score,
       count(*) as n
from trial
where tenant = :tenant and project = :project and source = :source and texts <> '[]'
group by 1, 2, 3;

-- name: trial_pairs
-- How often each pair of results occurred in tasks that had a loop with the texts and one without.
select one.score, other.score as without, count(*) as n
from trial one join trial other
on other.tenant = one.tenant and other.project = one.project and other.source = one.source and other.loop = one.loop || :suffix
where one.tenant = :tenant and one.project = :project and one.source = :source and one.texts = '[]'
  and one.shown and not other.shown
group by 1, 2;
