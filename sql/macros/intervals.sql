-- 95 % confidence bounds of a share: the Wilson score interval (Wilson, JASA 1927), z = 1.959964.
-- Clipped, because at 0 and 1 the exact bound is met only up to rounding.

create or replace macro wilson_low(ratio, n) as (
    case
        when ratio is not null then greatest(
            0,
            (
                ratio + 1.920729410347062 / n
                - 1.959963984540054 * sqrt((ratio * (1 - ratio) + 0.960364705173531 / n) / n)
            ) / (1 + 3.841458820694124 / n)
        )
    end
);

create or replace macro wilson_high(ratio, n) as (
    case
        when ratio is not null then least(
            1,
            (
                ratio + 1.920729410347062 / n
                + 1.959963984540054 * sqrt((ratio * (1 - ratio) + 0.960364705173531 / n) / n)
            ) / (1 + 3.841458820694124 / n)
        )
    end
);
