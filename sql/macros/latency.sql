-- Gaps between chunks: bins, stalls. Microseconds as integers.
-- Bins follow DDSketch (Masson et al., VLDB 2019): bin b holds (g^(b-1), g^b] with g = 1.02, so the
-- value read back is within 1 % of every value in it. Values of 0 and less have bin -1, read as 0.

create or replace macro gap_bin(gap_us) as
case when gap_us <= 0 then -1 else ceil(ln(gap_us) / ln(1.02))::integer end;

create or replace macro gap_bin_us(bin) as
case when bin < 0 then 0.0 else 2 * pow(1.02, bin) / (1 + 1.02) end;

-- A stall is a gap over this: 200 ms, or five times the median where there are gaps enough for one.
create or replace macro stall_threshold_us(n_gaps, median_gap_us) as
case when n_gaps >= 8 then greatest(200000, 5 * median_gap_us) else 200000 end;
