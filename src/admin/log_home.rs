//! The log's home beside the store: compares it with the daily sums, and brings to it what it lacks.

use std::{collections::BTreeMap, fmt::Display};

use super::{
    Admin, accounts,
    ask::Answered,
    author::Author,
    home::OpenHome,
    verify::{self, DAY_MS},
};
use crate::{
    api::{
        self,
        error::AdminError,
        log::{
            Day,
            checks::{FillLogHome, FilledDay, ShowLogHome, SumsDifference, VerifiedHomeDay, VerifyLogHome},
        },
    },
    domain::ledger::{
        NodeId,
        consumption::RETENTION_DAYS,
        daily_sums::Subject,
        proof::DayProof,
        usage_report::{date, day},
    },
    sinks::{
        comparison::{self, ROWS_AT_ONCE, Source},
        fill,
    },
};

impl Answered for ShowLogHome {
    async fn answer(self, admin: &Admin, _: Author) -> Result<api::log::checks::LogHome, AdminError> {
        let today = admin.ledger.now_ms().await?.div_euclid(DAY_MS);
        let homes = &admin.homes;
        Ok(api::log::checks::LogHome {
            home: homes.home.as_ref().map(|home| home.name().to_owned()),
            former: homes.former.name().map(str::to_owned),
            from: Day(date(today - i64::from(RETENTION_DAYS))),
            until: Day(date(today + 1)),
        })
    }
}

impl Answered for VerifyLogHome {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerifiedHomeDay, AdminError> {
        let home = home(admin)?;
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        let number = day(self.day.0);
        let (kept, summed) = verify::standing(&*admin.ledger, &account, number).await?;
        let failed = |error: &dyn Display| AdminError::failed(error.to_string());
        // Asked before any row is read: what the home had by then is among the rows.
        let mut reached = BTreeMap::new();
        for lane in summed.keys() {
            let watermark = home.home.watermark(lane).await.map_err(|error| failed(&error))?;
            // What a home has lost its feeder does not bring again by itself.
            let fed = admin.homes.lanes.reached(lane, home.name());
            reached.insert(lane.clone(), watermark.max(fed));
        }
        let of_account = kept.iter().filter(|sum| sum.subject == Subject::Account);
        let expected = of_account.map(|sum| sum.sums.requests).sum();
        let mut proof = DayProof::new(kept, summed);
        let present = comparison::count(
            &*home.home,
            (&account, number),
            (expected, ROWS_AT_ONCE),
            |(lane, number), row| {
                proof.add(lane, *number, row);
            },
        );
        let present = present.await.map_err(|error| failed(&error))?;
        let verdict = proof.verdict(&reached);
        Ok(VerifiedHomeDay {
            account,
            day: self.day,
            home: home.name().to_owned(),
            rows: present.rows as u64,
            again: present.again as u64,
            behind: verdict.behind.iter().map(NodeId::to_string).collect(),
            differences: verdict.differences.iter().map(SumsDifference::from).collect(),
        })
    }
}

impl Answered for FillLogHome {
    async fn answer(self, admin: &Admin, author: Author) -> Result<FilledDay, AdminError> {
        let home = home(admin)?;
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        admin.audit(author.peer, "log.fill", "", &self).await?;
        let _turn = home.filling.lock().await;
        let before_ms = home.figures.complete_before(admin.ledger.now_ms().await?);
        let sources = [Source::Store(&*admin.ledger)].into_iter();
        let mut rows = 0;
        for source in sources.chain(admin.homes.former.elsewhere().map(Source::Home)) {
            let filled = fill::fill(&*home.home, source, (&account, day(self.day.0)), before_ms).await;
            rows += filled.map_err(|error| AdminError::failed(error.to_string()))?;
        }
        Ok(FilledDay {
            account,
            day: self.day,
            home: home.name().to_owned(),
            rows,
        })
    }
}

/// The log's home, if it has another one than the store.
fn home(admin: &Admin) -> Result<OpenHome, AdminError> {
    admin.homes.home.clone().ok_or_else(|| {
        AdminError::invalid("the log has no other home than the store; name one in `[log] home` and start weir anew")
    })
}
