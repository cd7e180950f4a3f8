"""Planted bugs of the watch: which caps burn, who runs away, and how often they are told."""

from __future__ import annotations

from mutations.planting import Killer, Planted, bug, killed_by

WATCH = "test_watch"
APPS, USUAL = "test_watch_apps", "test_an_apps_usual_is_that_of_all_its_keys"
ONCE = killed_by(WATCH, "test_a_cap_that_falls_within_hours_is_told_once_a_day")
NOTED = killed_by(WATCH, "test_hours_are_noted_once_complete_and_the_same_again")
DEPARTMENT = killed_by(WATCH, "test_a_departments_month_burns_with_its_callers")


def burns(minutes_ago: int, tokens: int, cap: int, expected: int) -> Killer:
    return killed_by(
        WATCH,
        "test_when_a_cap_burns",
        minutes_ago=minutes_ago,
        tokens=tokens,
        cap=cap,
        expected=expected,
    )


BUGS = [
    bug(
        "a spike that is over burns",
        "quota_watch_burning.sql",
        "interval '5 minutes'",
        "interval '10 minutes'",
        burns(6, 3_000, 10_000, 0),
    ),
    bug(
        "a cap that falls in exactly the hours given doesn't burn",
        "quota_watch_burning.sql",
        "<= least(e.pace, e.short_pace)",
        "< least(e.pace, e.short_pace)",
        burns(1, 2_000, 10_000, 1),
    ),
    bug(
        "a cap that lasts to its end burns",
        "quota_watch_burning.sql",
        "       AND (s.cap - s.used) / e.pace * 3600 < date_part('epoch', p.ends_at - p_now)::numeric\n",
        "",
        killed_by(WATCH, "test_a_cap_that_lasts_to_the_periods_end_does_not_burn"),
    ),
    bug(
        "a steady pace near the cap burns",
        "quota_watch_burning.sql",
        "       AND e.pace * p.hours >= p_times * s.cap\n",
        "",
        killed_by(WATCH, "test_each_cap_is_judged_by_its_own_pace"),
    ),
    bug(
        "a threshold's message and the burn of its cap",
        "quota_watch_burning.sql",
        "AND w.logged_at > p_now - interval '1 hour'",
        "AND w.logged_at > p_now",
        killed_by(WATCH, "test_a_cap_whose_threshold_was_just_told_is_left_to_that_message"),
    ),
    bug(
        "a burn of the day is told at each tick",
        "quota_watch_tell_burns.sql",
        "THEN f.ends_at ELSE",
        "THEN p_now ELSE",
        ONCE,
    ),
    bug(
        "callers of other departments",
        "quota_watch_tell_burns.sql",
        "h.department_id = k.subject AND",
        "h.department_id IS NOT NULL OR",
        killed_by(WATCH, "test_a_departments_callers_are_its_own"),
    ),
    bug(
        "a busy app with requests of its own is a loop",
        "quota_watch_runaways.sql",
        "a.same * 5 >= s.recent * 4",
        "a.same * 5 >= s.recent * 3",
        killed_by(
            WATCH,
            "test_a_busy_app_with_requests_of_its_own_is_no_loop",
            same=79,
            expected=0,
        ),
    ),
    bug(
        "a loop that is its usual pace",
        "quota_watch_runaways.sql",
        "h.requests >= 2 * coalesce(h.usual_requests, 0)",
        "h.requests >= coalesce(h.usual_requests, 0)",
        killed_by(WATCH, "test_a_loop_that_is_its_usual_pace_is_none"),
    ),
    Planted(
        "who stopped is named",
        "quota_watch_runaways.sql",
        (
            (" AND c.recent > 0", ""),
            (
                "WHERE r.admitted_at > p_now - interval '10 minutes' AND r.admitted_at <= p_now",
                "WHERE true",
            ),
        ),
        killed_by(WATCH, "test_who_stopped_is_not_told_for_what_was_before"),
    ),
    bug(
        "an app that runs every hour of the day runs every minute",
        "quota_watch_runaways.sql",
        "h.hours <= 3 * h.days",
        "h.hours <= 30 * h.days",
        killed_by(WATCH, "test_what_runs_once_an_hour_is_no_daily_job"),
    ),
    bug(
        "no rule but the loop for small apps",
        "quota_watch_runaways.sql",
        ">= 30) AND c.recent",
        ">= 60) AND c.recent",
        killed_by(WATCH, "test_a_daily_job_that_runs_every_minute"),
    ),
    bug(
        "two passes tell the same runaway",
        "quota_watch_tell_runaways.sql",
        "WHERE quota_watch_due(t.told_at, t.quiet_until, p_now)",
        "WHERE true",
        killed_by(WATCH, "test_two_passes_at_once_tell_once"),
        tries=5,
    ),
    bug(
        "an hour is noted before it is complete",
        "quota_paces_note.sql",
        "v_now - interval '2 minutes'",
        "v_now - interval '0 minutes'",
        NOTED,
    ),
    bug(
        "old hours are kept",
        "quota_paces_note.sql",
        "v_now - interval '8 days'",
        "v_now - interval '80 days'",
        NOTED,
    ),
    bug(
        "a handful of requests is a pace",
        "quota_watch_burning.sql",
        "HAVING sum(r.requests) >= p_requests\n                           AND",
        "HAVING",
        killed_by(WATCH, "test_a_few_requests_are_chance_and_no_pace", requests=29, expected=0),
    ),
    bug(
        "an app is told beside its key",
        "quota_watch_runaways.sql",
        "AND k.rule IS NOT NULL",
        "AND k.rule IS NULL",
        killed_by(APPS, "test_an_app_whose_key_is_told_is_not_told_besides"),
    ),
    bug(
        "the usual of an app is that of one of its keys",
        "quota_watch_runaways.sql",
        "SELECT k.hour, sum(k.requests),",
        "SELECT k.hour, max(k.requests),",
        killed_by(APPS, USUAL, each=9, yesterday=0, expected=0),
    ),
    bug(
        "what an app does at each day's hour is told",
        "quota_watch_runaways.sql",
        "a.requests >= p_times * coalesce(m.requests, 0)",
        "a.requests >= coalesce(m.requests, 0)",
        killed_by(APPS, USUAL, each=10, yesterday=21, expected=0),
    ),
]
