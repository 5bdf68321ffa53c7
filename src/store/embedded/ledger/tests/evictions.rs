//! Days that leave memory as soon as they are written, between any two calls: what the contract asks is answered all the same.

use super::*;

async fn open() -> Option<Fixture> {
    Some(at_work(Duration::ZERO))
}

ledger_suite!(open);
