-- How far the published data reach, for the page's "as of" line.
-- Grain: one row. published_at: when the builder published; newest_ended_at: end of the request
-- that ended last, NULL before the first.
-- Parameters: none.
select
    (select max(publication.published_at) from publication) as published_at,
    count(*) as n_requests,
    max(requests.ended_at) as newest_ended_at
from requests
