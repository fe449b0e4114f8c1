//! Layouts of the extended statistics, with names: struct afs_PerfStats, fs_stats_FullPerfStats and
//! cbcounters (viced/fs_stats.h, viced/callback.h). Names are those printed by `xstat_fs_test`.

use afs_idl::fs::statistics_collection as collections;
use std::time::Duration;

/// Number of words in struct afs_PerfStats, including spares.
const PERFORMANCE_WORDS: usize = 98;

/// Number of size ranges by which transfers are counted.
const TRANSFER_BUCKETS: usize = 9;

/// Fields of struct afs_PerfStats before its spares.
const PERFORMANCE: [&str; 70] = [
    "numPerfCalls",
    "vcache_L_Entries",
    "vcache_L_Allocs",
    "vcache_L_Gets",
    "vcache_L_Reads",
    "vcache_L_Writes",
    "vcache_S_Entries",
    "vcache_S_Allocs",
    "vcache_S_Gets",
    "vcache_S_Reads",
    "vcache_S_Writes",
    "vcache_H_Entries",
    "vcache_H_Gets",
    "vcache_H_Replacements",
    "dir_Buffers",
    "dir_Calls",
    "dir_IOs",
    "rx_packetRequests",
    "rx_noPackets_RcvClass",
    "rx_noPackets_SendClass",
    "rx_noPackets_SpecialClass",
    "rx_socketGreedy",
    "rx_bogusPacketOnRead",
    "rx_bogusHost",
    "rx_noPacketOnRead",
    "rx_noPacketBuffersOnRead",
    "rx_selects",
    "rx_sendSelects",
    "rx_packetsRead_RcvClass",
    "rx_packetsRead_SendClass",
    "rx_packetsRead_SpecialClass",
    "rx_dataPacketsRead",
    "rx_ackPacketsRead",
    "rx_dupPacketsRead",
    "rx_spuriousPacketsRead",
    "rx_packetsSent_RcvClass",
    "rx_packetsSent_SendClass",
    "rx_packetsSent_SpecialClass",
    "rx_ackPacketsSent",
    "rx_pingPacketsSent",
    "rx_abortPacketsSent",
    "rx_busyPacketsSent",
    "rx_dataPacketsSent",
    "rx_dataPacketsReSent",
    "rx_dataPacketsPushed",
    "rx_ignoreAckedPacket",
    "rx_totalRtt_Sec",
    "rx_totalRtt_Usec",
    "rx_minRtt_Sec",
    "rx_minRtt_Usec",
    "rx_maxRtt_Sec",
    "rx_maxRtt_Usec",
    "rx_nRttSamples",
    "rx_nServerConns",
    "rx_nClientConns",
    "rx_nPeerStructs",
    "rx_nCallStructs",
    "rx_nFreeCallStructs",
    "host_NumHostEntries",
    "host_HostBlocks",
    "host_NonDeletedHosts",
    "host_HostsInSameNetOrSubnet",
    "host_HostsInDiffSubnet",
    "host_HostsInDiffNetwork",
    "host_NumClients",
    "host_ClientBlocks",
    "sysname_ID",
    "rx_nBusies",
    "fs_nBusies",
    "fs_GetCapabilities",
];

/// Calls counted and timed in struct fs_stats_DetailedStats.
const OPERATIONS: [&str; 28] = [
    "FetchData",
    "FetchACL",
    "FetchStatus",
    "StoreData",
    "StoreACL",
    "StoreStatus",
    "RemoveFile",
    "CreateFile",
    "Rename",
    "Symlink",
    "Link",
    "MakeDir",
    "RemoveDir",
    "SetLock",
    "ExtendLock",
    "ReleaseLock",
    "GetStatistics",
    "GiveUpCallBacks",
    "GetVolumeInfo",
    "GetVolumeStatus",
    "SetVolumeStatus",
    "GetRootVolume",
    "CheckToken",
    "GetTime",
    "NGetVolumeInfo",
    "BulkStatus",
    "XStatsVersion",
    "GetXStats",
];

/// Data transfers that it also counts.
const TRANSFERS: [&str; 2] = ["FetchData (data)", "StoreData (data)"];

/// Fields of struct cbcounters.
const CALLBACKS: [&str; 16] = [
    "DeleteFiles",
    "DeleteCallBacks",
    "BreakCallBacks",
    "AddCallBack",
    "GotSomeSpaces",
    "DeleteAllCallBacks",
    "nFEs",
    "nCBs",
    "nblks",
    "CBsTimedOut",
    "nbreakers",
    "GSS1",
    "GSS2",
    "GSS3",
    "GSS4",
    "GSS5",
];

/// A collection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) figures: Vec<Figure>,
    pub(crate) operations: Vec<Operation>,
}

/// A named number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: i64,
}

/// A type of call or transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) calls: i64,
    pub(crate) successes: i64,
    pub(crate) time_us: u64,
    /// 0 without a success.
    pub(crate) time_us_min: u64,
    pub(crate) time_us_max: u64,
    /// KiB transferred; `None` for calls.
    pub(crate) kib: Option<i64>,
}

impl Layout {
    /// Names words of unknown meaning by their index.
    pub(crate) fn numbered(words: &[i32]) -> Layout {
        let name =
            |(place, value): (usize, &i32)| Figure { name: format!("word_{place}"), value: (*value).into() };
        Layout { figures: words.iter().enumerate().map(name).collect(), operations: Vec::new() }
    }

    /// Decodes a file server's collection. Words of an unexpected length are only numbered.
    pub(crate) fn of_file_server(collection: i32, words: &[i32]) -> Layout {
        match (collection, words.len()) {
            (collections::PERFORMANCE, PERFORMANCE_WORDS) => Layout::named(&PERFORMANCE, words),
            (collections::CALLBACKS, length) if length == CALLBACKS.len() => Layout::named(&CALLBACKS, words),
            (collections::FULL_PERFORMANCE, _) => {
                Layout::full_performance(words).unwrap_or_else(|| Layout::numbered(words))
            }
            _ => Layout::numbered(words),
        }
    }

    fn named(names: &[&str], words: &[i32]) -> Layout {
        let figures = names.iter().zip(words);
        let figure =
            |(name, value): (&&str, &i32)| Figure { name: (*name).to_owned(), value: (*value).into() };
        Layout { figures: figures.map(figure).collect(), operations: Vec::new() }
    }

    /// A time takes two words from a 32-bit server and four from a 64-bit server.
    fn full_performance(words: &[i32]) -> Option<Layout> {
        let words_with = |time: usize| {
            let operation = 2 + 4 * time;
            let transfer = operation + 3 + TRANSFER_BUCKETS;
            PERFORMANCE_WORDS + time + OPERATIONS.len() * operation + TRANSFERS.len() * transfer
        };
        let time_words = [2, 4].into_iter().find(|time| words.len() == words_with(*time))?;
        let mut rest = Words { words: &words[PERFORMANCE_WORDS..], time_words };
        let epoch = rest.time()?;
        let mut layout = Layout::named(&PERFORMANCE, words);
        layout.figures.push(Figure { name: "epoch".to_owned(), value: epoch.as_secs() as i64 });
        for name in OPERATIONS {
            layout.operations.push(rest.operation(name)?);
        }
        for name in TRANSFERS {
            let operation = rest.operation(name)?;
            let kib = rest.word()?;
            (0..2 + TRANSFER_BUCKETS).try_for_each(|_| rest.word().map(drop))?;
            layout.operations.push(Operation { kib: Some(kib), ..operation });
        }
        Some(layout)
    }
}

/// Decodes words in sequence.
struct Words<'a> {
    words: &'a [i32],
    time_words: usize,
}

impl Words<'_> {
    fn word(&mut self) -> Option<i64> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        Some((*word).into())
    }

    /// Decodes a struct timeval. A 64-bit server sends each number as two halves; one is 0, and its byte
    /// order decides which.
    fn time(&mut self) -> Option<Duration> {
        let mut number = || -> Option<u64> {
            let mut value = 0;
            for _ in 0..self.time_words / 2 {
                value |= self.word()? as u32;
            }
            Some(value.into())
        };
        let (seconds, us) = (number()?, number()?);
        Some(Duration::from_secs(seconds) + Duration::from_micros(us))
    }

    fn operation(&mut self, name: &'static str) -> Option<Operation> {
        let (calls, successes) = (self.word()?, self.word()?);
        let us = |time: Duration| time.as_micros() as u64;
        let (sum, _squares, least, most) = (self.time()?, self.time()?, self.time()?, self.time()?);
        let time_us_min = if successes == 0 { 0 } else { us(least) };
        Some(Operation {
            name,
            calls,
            successes,
            time_us: us(sum),
            time_us_min,
            time_us_max: us(most),
            kib: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of a full performance collection with 5 `FetchStatus` calls and 7 KiB fetched.
    fn words(time: impl Fn(i32, i32) -> Vec<i32>) -> Vec<i32> {
        let operation = |calls: i32| {
            let times = [time(calls, 10), time(0, 0), time(0, 3), time(2, 4)].concat();
            [&[calls, calls][..], &times].concat()
        };
        let mut words = vec![0; PERFORMANCE_WORDS];
        words[16] = 42;
        words.extend(time(1_700_000_000, 0));
        (0..28).for_each(|place| words.extend(operation(if place == 2 { 5 } else { 0 })));
        for kib in [7, 0] {
            words.extend(operation(0));
            words.extend([&[kib, 0, 0][..], &[0; 9]].concat());
        }
        words
    }

    #[test]
    fn all_server_kinds_have_the_same_layout() {
        let narrow = words(|seconds, us| vec![seconds, us]);
        let little = words(|seconds, us| vec![seconds, 0, us, 0]);
        let big = words(|seconds, us| vec![0, seconds, 0, us]);
        assert_eq!((narrow.len(), little.len()), (424, 666));
        let layout = Layout::of_file_server(2, &narrow);
        assert_eq!(layout, Layout::of_file_server(2, &little));
        assert_eq!(layout, Layout::of_file_server(2, &big));
        assert_eq!(layout.figures[16], Figure { name: "dir_IOs".to_owned(), value: 42 });
        assert_eq!(layout.figures[70], Figure { name: "epoch".to_owned(), value: 1_700_000_000 });
        let status = &layout.operations[2];
        assert_eq!((status.name, status.calls, status.time_us), ("FetchStatus", 5, 5_000_010));
        assert_eq!((status.time_us_min, status.time_us_max), (3, 2_000_004));
        assert_eq!(layout.operations[28].kib, Some(7));
        assert_eq!(layout.operations.len(), 30);
    }

    #[test]
    fn unknown_fields_are_numbered() {
        assert_eq!(Layout::of_file_server(2, &[1; 500]), Layout::numbered(&[1; 500]));
        assert_eq!(Layout::of_file_server(3, &[1; 16]).figures[9].name, "CBsTimedOut");
        assert_eq!(Layout::of_file_server(0, &[]), Layout::default());
    }
}
