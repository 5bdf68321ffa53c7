//! The calendar of the scripts is that of the rest.

use crate::domain::ledger::QuotaReset;
use crate::domain::ledger::period::{Period, resets_at};
use crate::store::redis::test_server::TestServer;

const DAY_MS: i64 = 86_400_000;
/// 2201-01-01.
const LAST_DAY: i64 = 84_371;
const DAYS_AT_ONCE: usize = 2_000;

const SAMPLE: &str = "local reply = {}
    for ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) do
      local period = periods(ms)
      reply[#reply + 1] = table.concat({
        period.none, period.daily, period.weekly, period.monthly, period.daily_end, period.weekly_end, period.monthly_end
      }, ' ')
    end
    return reply";

#[tokio::test]
async fn the_scripts_know_the_periods_of_every_day() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let script = format!("{}{SAMPLE}", include_str!("../period.lua"));
    // The first and the last millisecond of each day from 1970 to 2200, and of some before.
    for start in (-400..LAST_DAY).step_by(DAYS_AT_ONCE) {
        for from in [start * DAY_MS, (start + 1) * DAY_MS - 1] {
            compare(&server, &script, from).await;
        }
    }
}

async fn compare(server: &TestServer, script: &str, from: i64) {
    let days = i64::try_from(DAYS_AT_ONCE).unwrap();
    let to = from + (days - 1) * DAY_MS;
    let words = [script, "0", &from.to_string(), &to.to_string(), &DAY_MS.to_string()];
    let told: Vec<String> = server.ask(&[&["EVAL"], &words[..]].concat()).await;
    assert_eq!(told.len(), DAYS_AT_ONCE);
    for (ms, told) in (from..).step_by(usize::try_from(DAY_MS).unwrap()).zip(told) {
        let ends =
            [QuotaReset::Daily, QuotaReset::Weekly, QuotaReset::Monthly].map(|reset| resets_at(reset, ms).unwrap());
        let [all, day, week, month] = Period::each_at(ms);
        let expected = format!("{all} {day} {week} {month} {} {} {}", ends[0], ends[1], ends[2]);
        assert_eq!(told, expected, "{ms}");
    }
}
