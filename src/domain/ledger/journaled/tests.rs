//! Tests of the records' bytes.

use proptest::prelude::*;

use super::*;
use crate::domain::ledger::{
    AccountChange, Settlement,
    consumption::row_json_tests::{count, modifiers, parts, row, source, text, usage},
    daily_sums::Sums,
    ids::NodeId,
    tests::record as account_record,
};

fn lease() -> impl Strategy<Value = Option<LeaseId>> {
    let holder = NodeId::none();
    prop::option::of(any::<u64>()).prop_map(move |number| {
        number.map(|number| LeaseId {
            holder: holder.clone(),
            number,
        })
    })
}

fn checkpoint() -> BoxedStrategy<Checkpoint> {
    let texts = (text(), text());
    let numbers = (
        any::<u16>(),
        any::<i64>(),
        count(),
        prop::option::of(count()),
        any::<u32>(),
    );
    (texts, numbers, usage(), source(), parts(), modifiers())
        .prop_map(
            |((request, provider), (status, cost, latency_ms, ttft_ms, attempts), usage, source, parts, modifiers)| {
                Checkpoint {
                    request: request.into(),
                    status,
                    usage,
                    source,
                    modifiers,
                    parts,
                    cost: NanoUsd::from_nanos(cost),
                    provider: provider.into(),
                    latency_ms,
                    ttft_ms,
                    attempts,
                }
            },
        )
        .boxed()
}

fn admitted() -> BoxedStrategy<AdmittedRequest> {
    let admitted = (row(), count(), lease()).prop_map(|(row, tokens_estimated, lease)| AdmittedRequest {
        row: row.into(),
        tokens_estimated,
        lease,
    });
    // Several of these in one are too large for the stack.
    admitted.boxed()
}

fn settle(account: SmolStr, seq: u64, settlement: Settlement) -> Record {
    let change = AccountChange::Settle(Box::new(settlement));
    Record::Step {
        account,
        step: Step { seq, change },
    }
}

fn record() -> BoxedStrategy<Record> {
    let admissions = admitted().prop_map(|admitted| Record::Admit(Box::new(admitted)));
    let checkpoints = prop::collection::vec(checkpoint(), 0..4)
        .prop_map(Record::Checkpoints)
        .boxed();
    let charge =
        |admitted: AdmittedRequest| Settlement::of(admitted.row, admitted.tokens_estimated).with_lease(admitted.lease);
    let charges = (any::<u64>(), admitted())
        .prop_map(move |(seq, admitted)| settle(admitted.row.account.clone(), seq, charge(admitted)));
    let releases = (text(), any::<u64>(), admitted())
        .prop_map(|(account, seq, admitted)| settle(account.into(), seq, admitted.without_charge()));
    // What weir does not make, but could be made.
    let odd = (text(), any::<u64>(), admitted(), 0..6).prop_map(move |(account, seq, admitted, which)| {
        let owner = admitted.row.account.clone();
        let mut settlement = charge(admitted);
        match which {
            0 => return settle(account.into(), seq, settlement),
            1 => settlement.request = account.into(),
            2 => settlement.at_ms = settlement.at_ms.wrapping_add(1),
            3 => settlement.cost = NanoUsd::from_nanos(settlement.cost.nanos().wrapping_add(1)),
            4 => settlement.tokens_used = settlement.tokens_used.wrapping_add(1),
            _ => settlement.row = None,
        }
        settle(owner, seq, settlement)
    });
    let nothing = (text(), any::<u64>()).prop_map(|(account, seq)| Record::Step {
        account: account.into(),
        step: Step {
            seq,
            change: AccountChange::nothing(),
        },
    });
    let gone = any::<u64>().prop_map(|revision| Record::KeyGone {
        id: KeyId::parse("key_0123456789abcdef").unwrap(),
        revision,
    });
    let account = (text(), account_record()).prop_map(|(account, record)| Record::Account {
        account: account.into(),
        record,
    });
    prop_oneof![3 => admissions, 3 => checkpoints, 4 => charges, 2 => releases, 2 => odd, 1 => nothing, 1 => gone, 1 => account]
        .boxed()
}

fn bytes_of(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.write(&mut bytes).unwrap();
    bytes
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written_and_has_no_zeros(record in record()) {
        let mut written = b"before".to_vec();
        record.write(&mut written).unwrap();
        let bytes = written.strip_prefix(b"before").unwrap();
        prop_assert!(!bytes.contains(&0));
        prop_assert_eq!(Record::is_step(bytes), matches!(record, Record::Step { .. }));
        prop_assert_eq!(Record::read(bytes), Some(record));
    }

    #[test]
    fn sums_are_read_as_they_were_written_and_nothing_else_is(
        (requests, errors, cost, digest) in (any::<u64>(), any::<u64>(), any::<i64>(), any::<u64>()),
        usage in usage(),
        at: prop::sample::Index,
    ) {
        let sums = Sums { requests, errors, cost_nano_usd: NanoUsd::from_nanos(cost), digest, usage };
        let mut bytes = Vec::new();
        sums.write_bytes(&mut bytes);
        prop_assert_eq!(Sums::read_bytes(&bytes), Some(sums));
        prop_assert_eq!(Sums::read_bytes(&bytes[..at.index(bytes.len())]), None);
        bytes.push(1);
        prop_assert_eq!(Sums::read_bytes(&bytes), None);
    }

    #[test]
    fn a_record_that_is_cut_is_none_or_has_fewer_checkpoints(record in record(), at: prop::sample::Index) {
        let bytes = bytes_of(&record);
        let cut = &bytes[..at.index(bytes.len())];
        match (Record::read(cut), record) {
            (None, _) => {}
            (Some(Record::Checkpoints(fewer)), Record::Checkpoints(all)) => prop_assert!(all.starts_with(&fewer)),
            (Some(read), record) => prop_assert!(false, "{:?} of {:?}", read, record),
        }
    }

    /// Whatever bytes a sum holds for, they are read to an end, and what is read is written to be read as the same.
    #[test]
    fn any_bytes_are_read_to_their_end(
        record in record(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        others in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0..8_u8,
    ) {
        let mut changed = bytes_of(&record);
        for (at, byte) in changes {
            let at = at.index(changed.len());
            changed[at] = byte;
        }
        for bytes in [changed, [&[VERSION, kind][..], &others].concat()] {
            if let Some(read) = Record::read(&bytes) {
                prop_assert_eq!(Record::read(&bytes_of(&read)), Some(read));
            }
        }
    }

    #[test]
    fn checkpoints_are_as_many_as_fit(all in prop::collection::vec(checkpoint(), 1..20), percent in 0..150_usize) {
        let whole = bytes_of(&Record::Checkpoints(all.clone()));
        let bytes_max = whole.len() * percent / 100;
        let mut bytes = Vec::new();
        let count = Record::write_checkpoints(&all, bytes_max, &mut bytes);
        prop_assert!(bytes.len() <= bytes_max);
        if count == 0 {
            prop_assert!(bytes.is_empty());
            let first = bytes_of(&Record::Checkpoints(vec![all[0].clone()]));
            prop_assert!(first.len() > bytes_max);
        } else {
            prop_assert_eq!(Record::read(&bytes), Some(Record::Checkpoints(all[..count].to_vec())));
            let more = all.get(..=count).map(|more| bytes_of(&Record::Checkpoints(more.to_vec())));
            prop_assert!(more.is_none_or(|more| more.len() > bytes_max));
        }
    }
}

#[test]
fn another_version_or_kind_is_no_record() {
    let nothing = Record::Step {
        account: "acme".into(),
        step: Step {
            seq: 1,
            change: AccountChange::nothing(),
        },
    };
    let mut bytes = bytes_of(&nothing);
    bytes[0] += 1;
    assert_eq!((Record::read(&bytes), Record::is_step(&bytes)), (None, false));
    let mut bytes = bytes_of(&nothing);
    bytes[1] = kind::OTHER + 1;
    assert_eq!((Record::read(&bytes), Record::is_step(&bytes)), (None, false));
    assert_eq!(Record::read(&[]), None);
    assert_eq!(Record::read(&[VERSION]), None);
}
