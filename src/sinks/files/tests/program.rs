//! Any program of files that are written, merged and removed, of processes that die between the steps of that, and of readers in between:
//! each row that was there when a reader began is read exactly once.

use parking_lot::Mutex;
use proptest::prelude::*;
use tempfile::{NamedTempFile, TempDir};

use super::{merges::merging, *};
use crate::sinks::files::table::TableReader;

/// How many files of today become one.
const MANY: usize = 3;
const LANES: usize = 2;
const MINUTE_MS: i64 = 60_000;

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    /// A process writes files of so many rows each, half a minute apart, in the lane of this place.
    Write(usize, Vec<u64>),
    /// The process of a lane merges and removes, by a clock that is ahead. It dies after so many changes.
    KeepHouse(usize, i64, Option<usize>),
    /// Another process takes a lane over.
    Restart(usize),
    /// Time goes by.
    Pass(i64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let lane = || 0..LANES;
    prop_oneof![
        6 => (lane(), prop::collection::vec(1..4_u64, 1..4)).prop_map(|(lane, counts)| Event::Write(lane, counts)),
        5 => (lane(), prop::sample::select(vec![0, 0, 0, 2 * DAY_MS]), prop::option::of(0..8_usize))
            .prop_map(|(lane, ahead_ms, left)| Event::KeepHouse(lane, ahead_ms, left)),
        1 => lane().prop_map(Event::Restart),
        3 => prop::sample::select(vec![MINUTE_MS / 2, MINUTE_MS, 26 * HOUR_MS]).prop_map(Event::Pass),
    ]
}

/// A folder whose user may die between two changes, and in which something happens whenever it is read.
struct Stage {
    folder: FolderStorage,
    /// How many changes are made before its user dies.
    left: Mutex<Option<usize>>,
    happens: Box<dyn Fn() + Send + Sync>,
}

impl Stage {
    fn on(folder: &Path, happens: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            folder: FolderStorage::new(folder),
            left: Mutex::default(),
            happens: Box::new(happens),
        }
    }

    fn change(&self) -> io::Result<()> {
        match &mut *self.left.lock() {
            Some(0) => Err(io::Error::other("the process dies")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl FileStorage for Stage {
    fn name(&self) -> String {
        self.folder.name()
    }

    fn days(&self) -> io::Result<Vec<Date>> {
        self.folder.days()
    }

    fn all_files(&self) -> io::Result<Vec<FileName>> {
        self.folder.all_files()
    }

    fn day_files(&self, day: Date) -> io::Result<Vec<FileName>> {
        (self.happens)();
        self.folder.day_files(day)
    }

    fn file_sizes(&self, day: Date) -> io::Result<BTreeMap<FileName, u64>> {
        self.folder.file_sizes(day)
    }

    fn open(&self, place: &FileName) -> parquet::errors::Result<TableReader> {
        (self.happens)();
        self.folder.open(place)
    }

    fn put(&self, place: &FileName, file: NamedTempFile) -> io::Result<()> {
        self.change()?;
        self.folder.put(place, file)
    }

    fn sync_files(&self) -> io::Result<()> {
        self.folder.sync_files()
    }

    fn remove(&self, place: &FileName) -> io::Result<()> {
        self.change()?;
        self.folder.remove(place)
    }

    fn remove_day(&self, day: Date) -> io::Result<()> {
        self.folder.remove_day(day)
    }

    fn retention(&self) -> io::Result<Option<RetentionProgress>> {
        self.folder.retention()
    }

    fn set_retention(&self, retention: &RetentionProgress) -> io::Result<()> {
        self.change()?;
        self.folder.set_retention(retention)
    }
}

/// The process that writes a lane.
struct Process {
    node: NodeId,
    stage: Arc<Stage>,
    files: LogFiles,
    /// Where its rows end.
    end: u64,
}

impl Process {
    fn start(folder: &Path, node: NodeId, end: u64) -> Self {
        let files = LogFiles::open(folder, Duration::from_secs(30), 50_000).unwrap();
        let stage = Arc::new(Stage::on(folder, || {}));
        let files = LogFiles {
            storage: Arc::clone(&stage) as _,
            ..merging(files, MANY)
        };
        Self {
            node,
            stage,
            files,
            end,
        }
    }
}

/// A folder, who writes there, and the rows that were written.
struct World {
    folder: TempDir,
    processes: Vec<Process>,
    now_ms: i64,
    ids: BTreeSet<String>,
}

impl World {
    fn new() -> Self {
        let folder = scratch();
        let lanes = (1..).take(LANES).map(node);
        Self {
            processes: lanes.map(|node| Process::start(folder.path(), node, 0)).collect(),
            folder,
            now_ms: BEGIN_MS,
            ids: BTreeSet::new(),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Write(lane, counts) => counts.into_iter().for_each(|count| self.write(lane, count)),
            Event::KeepHouse(lane, ahead_ms, left) => self.keep_house(lane, ahead_ms, left),
            Event::Restart(lane) => self.restart(lane),
            Event::Pass(ms) => self.now_ms += ms,
        }
        for process in &self.processes {
            assert_eq!(process.files.lane_end(&process.node).unwrap(), process.end);
        }
    }

    fn write(&mut self, lane: usize, count: u64) {
        self.now_ms += MINUTE_MS / 2;
        let process = &mut self.processes[lane];
        let after = process.end;
        let rows = (0..count).map(|place| NumberedRow {
            number: after + 1 + place * 3,
            row: row(
                (after + place) * 2 + lane as u64,
                self.now_ms - i64::try_from(place).unwrap(),
            ),
        });
        let rows: Vec<Arc<NumberedRow>> = rows.map(Arc::new).collect();
        self.ids.extend(rows.iter().map(|row| row.row.request_id.to_string()));
        process.end = after + count * 3;
        let batch = Batch {
            node: process.node.clone(),
            after,
            upto: process.end,
            rows,
        };
        process.files.write(batch).unwrap();
    }

    fn keep_house(&mut self, lane: usize, ahead_ms: i64, left: Option<usize>) {
        let process = &self.processes[lane];
        *process.stage.left.lock() = left;
        let kept = process.files.housekeep(self.now_ms + ahead_ms, 180);
        *process.stage.left.lock() = None;
        if kept.is_err() {
            assert!(left.is_some(), "{kept:?}");
            self.restart(lane);
        }
    }

    fn restart(&mut self, lane: usize) {
        let process = &self.processes[lane];
        let next = Process::start(self.folder.path(), process.node.clone(), process.end);
        self.processes[lane] = next;
    }

    /// The days on which rows may have ended.
    fn days(&self) -> RangeInclusive<i64> {
        BEGIN_MS.div_euclid(DAY_MS) - 1..=self.now_ms.div_euclid(DAY_MS)
    }
}

/// Reads all rows by pages. A reader that is told to try again does so.
fn read(storage: &dyn FileStorage, days: RangeInclusive<i64>, limit: usize) -> Vec<Row> {
    let (pages, mut found) = (PageReader::default(), Vec::new());
    for day in days {
        let all = LogFilter::between(BEGIN_MS - DAY_MS, BEGIN_MS + 1000 * DAY_MS);
        let mut ask = LogPageQuery::new(all, day, limit);
        loop {
            match pages.page(storage, &ask) {
                Ok(page) => {
                    found.extend(page.rows);
                    let Some(next) = page.next else { break };
                    ask.after = next;
                }
                Err(error) => assert!(is_missing(&error) || error.to_string().contains("try again"), "{error}"),
            }
        }
    }
    found
}

fn ids(rows: &[Row]) -> BTreeSet<String> {
    rows.iter().map(|row| row.request_id.to_string()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn each_row_is_read_exactly_once_whatever_is_written_merged_and_removed_meanwhile(
        before in prop::collection::vec(any_event(), 0..16),
        meanwhile in prop::collection::vec(any_event(), 0..10),
        limit in 2..8_usize,
    ) {
        let mut world = World::new();
        before.into_iter().for_each(|event| world.happen(event));
        let (there, days) = (world.ids.clone(), world.days());
        let world = Arc::new(Mutex::new(world));
        let folder = world.lock().folder.path().to_owned();
        let events = Mutex::new(meanwhile.into_iter());
        let happens = {
            let world = Arc::clone(&world);
            move || {
                let event = events.lock().next();
                event.into_iter().for_each(|event| world.lock().happen(event));
            }
        };
        let found = read(&Stage::on(&folder, happens), days, limit);
        let read_ids = ids(&found);
        prop_assert_eq!(read_ids.len(), found.len(), "none twice");
        prop_assert!(read_ids.is_superset(&there), "{:?} are left out", there.difference(&read_ids));
        // In the end all are there, and each in one file.
        let mut world = world.lock();
        for later_ms in [0, 3 * DAY_MS, MINUTE_MS, MINUTE_MS] {
            world.happen(Event::Pass(later_ms));
            (0..LANES).for_each(|lane| world.keep_house(lane, 0, None));
        }
        let stage = Stage::on(&folder, || {});
        let found = read(&stage, world.days(), limit);
        prop_assert_eq!((ids(&found), found.len()), (world.ids.clone(), world.ids.len()));
        let places = stage.all_files().unwrap();
        prop_assert_eq!(without_merged(&places), places);
    }
}
