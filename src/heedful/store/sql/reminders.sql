-- name: settle_reminder
update reminder set repeated = :repeated, calls = :calls, settled = true
where tenant = :tenant and project = :project and session = :session and subject = :subject and not settled;

-- name: count_reminders
select told, share, repeated, count(*) as n, sum(calls) as calls from reminder
where tenant = :tenant and project = :project and settled
group by told, share, repeated;

-- name: sum_losses
select count(*) as failures, coalesce(sum(calls), 0) as calls from loss where tenant = :tenant and project = :project;
