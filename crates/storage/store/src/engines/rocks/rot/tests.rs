use super::super::survey::tests::{log_of, replay, survey_of};
use super::super::survey::{BLOCK_BYTES, HEADER_BYTES};
use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

fn find_in(logs: &[Survey]) -> Option<Loss> {
    let loss = find(logs, ANY);
    assert!(loss.is_none() || is_possible(logs));
    loss
}

/// Returns the logs with these contents, numbered from 1.
fn surveys(logs: &[&[u8]]) -> Vec<Survey> {
    let survey = |(number, log): (u64, &&[u8])| Survey { number, ..survey_of(log) };
    (1..).zip(logs).map(survey).collect()
}

/// Batches of one client that waits for each: every one claims all before it.
fn one_client(lengths: &[usize]) -> Vec<(u64, usize)> {
    (0..).zip(lengths.iter().copied()).collect()
}

/// The loss of changes whose first one is known.
fn lost(loss: Option<Loss>) -> Option<(u64, u64)> {
    loss.map(|loss| (loss.first.unwrap(), loss.last))
}

/// Whether other batches prove that this one was durable, if it cannot be read.
fn is_provable(claims: &[(u64, usize)], number: usize) -> bool {
    claims.iter().enumerate().any(|(other, (durable, _))| other != number && *durable > number as u64)
}

/// Returns what a log proves whose database has no tables.
fn find_in_only(log: &[u8]) -> Option<Loss> {
    let logs = surveys(&[log]);
    let loss = find(&logs, Opened { newest_change: replay(log).len() as u64, ..ANY });
    assert!(loss.is_none() || is_possible(&logs));
    loss
}

#[test]
fn each_flipped_byte_of_durable_batches_is_found() {
    // Groups of several batches, as of clients that share syncs.
    let batches = [(0, 5), (0, 40), (0, 0), (3, 90), (3, 7), (5, 200), (5, 11), (6, 60), (8, 30), (8, 0)];
    let (log, starts) = log_of(&batches);
    assert_eq!(find_in(&surveys(&[&log])), None);
    let mut found = 0;
    for at in 0..log.len() {
        let number = starts.partition_point(|start| *start <= at) - 1;
        for bit in 0..8 {
            let mut rotten = log.clone();
            rotten[at] ^= 1 << bit;
            let loss = find_in_only(&rotten);
            assert_eq!(loss.is_some(), is_provable(&batches, number), "byte {at} of batch {number}");
            if let Some(loss) = loss {
                assert_eq!((loss.offset, loss.last), (starts[number] as u64, 8), "byte {at}");
                assert_eq!(loss.first, Some(number as u64 + 1));
                found += 1;
            }
        }
    }
    assert!(found > 3000, "{found}");
}

#[test]
fn each_lost_sector_of_long_batches_is_found() {
    let batches = one_client(&[3000, 70_000, 100, 100, 40_000, 32_650, 2000, 20, 20, 20]);
    let (log, starts) = log_of(&batches);
    let mut rng = SmallRng::seed_from_u64(1);
    for begin in (0..log.len()).step_by(512) {
        let end = (begin + 512).min(log.len());
        for kind in 0..3 {
            let mut rotten = log.clone();
            match kind {
                0 => rotten[begin..end].fill(0),
                1 => rng.fill_bytes(&mut rotten[begin..end]),
                _ => rotten[rng.random_range(begin..end)] ^= 0x10,
            }
            let (left, whole) = (replay(&rotten).len(), batches.len());
            // Which batches the sector has parts of.
            let last = starts.partition_point(|start| *start < end) - 1;
            let claims = batches[last + 1..].iter().map(|(durable, _)| *durable).max().unwrap_or(0);
            let is_certain = left < whole && claims > left as u64;
            let loss = find_in_only(&rotten);
            assert!(loss.is_some() || !is_certain, "{begin} {kind}: {left} left, {claims} claimed");
        }
    }
}

#[test]
fn a_claim_is_found_wherever_it_crosses_into_a_block() {
    let mut found = 0;
    for length in BLOCK_BYTES - 3 * 41 - 60..BLOCK_BYTES - 2 * 41 {
        // The third batch is the only one that proves anything.
        let (mut log, starts) = log_of(&[(0, 0), (0, length), (2, 100)]);
        assert_eq!(find_in(&surveys(&[&log])), None);
        log[starts[1] + HEADER_BYTES + 20] ^= 1;
        assert_eq!(lost(find_in(&surveys(&[&log]))), Some((2, 2)), "{length}");
        found += u32::from(starts[2] < BLOCK_BYTES && BLOCK_BYTES < starts[2] + 7 + 34);
    }
    assert!(found > 30, "{found}");
}

/// Returns two logs with these batches; the second begins with number `split`.
fn two_logs(batches: &[(u64, usize)], split: usize) -> [Vec<u8>; 2] {
    // The second log has the first one's length added to the places of its records, so both begin with a block.
    let (log, starts) = log_of(&batches[..split]);
    let mut second = Vec::new();
    for (number, (durable, length)) in (0..).zip(batches).skip(split) {
        second.extend(super::super::survey::tests::record(second.len(), number, *durable, *length));
    }
    assert_eq!(starts.len(), split);
    [log, second]
}

#[test]
fn damage_in_an_older_log_is_found_and_so_is_its_absence() {
    let batches = one_client(&[10, 20, 30, 40, 50, 60]);
    let [first, second] = two_logs(&batches, 4);
    assert_eq!(find_in(&surveys(&[&first, &second])), None);
    let mut rotten = first.clone();
    rotten[60] ^= 1;
    assert_eq!(lost(find_in(&surveys(&[&rotten, &second]))), Some((2, 5)));
    // Its end is gone, or reads as zeros.
    let (_, starts) = log_of(&batches);
    assert_eq!(lost(find_in(&surveys(&[&first[..starts[2]], &second]))), Some((3, 5)));
    let mut rotten = first.clone();
    rotten[starts[3]..].fill(0);
    assert_eq!(lost(find_in(&surveys(&[&rotten, &second]))), Some((4, 5)));
    // It is not needed, because tables have all that it had.
    let of_tables = Opened { oldest_log: Some(2), ..ANY };
    assert_eq!(find(&surveys(&[&rotten, &second]), of_tables), None);
    // A log in the middle is missing.
    let [first, rest] = two_logs(&batches, 2);
    let (_, last) = (rest, two_logs(&batches, 4)[1].clone());
    assert_eq!(lost(find_in(&surveys(&[&first, &last]))), Some((3, 5)));
}

#[test]
fn the_tables_show_that_a_whole_older_log_is_lost() {
    let batches = one_client(&[10, 20, 30, 40]);
    let [mut first, second] = two_logs(&batches, 1);
    first[20] ^= 1;
    let logs = surveys(&[&first, &second]);
    assert!(is_possible(&logs));
    assert_eq!(find(&logs, ANY), None);
    let loss = find(&logs, Opened { oldest_log: Some(0), newest_change: 0 }).unwrap();
    assert_eq!((loss.first, loss.last), (Some(1), 3));
}

#[test]
fn a_log_without_its_beginning_is_found_by_an_earlier_one() {
    let batches = one_client(&[10, 20, 30, 40, 50, 60]);
    let [first, second] = two_logs(&batches, 2);
    let [_, third] = two_logs(&batches, 5);
    let (second, mut rotten) = (&second[..second.len() - third.len()], second.clone());
    rotten.truncate(second.len());
    rotten[20] ^= 1;
    // Tables have what the first one had, and perhaps more.
    let opened = Opened { oldest_log: Some(2), ..ANY };
    assert_eq!(find(&surveys(&[&first, second, &third]), opened), None);
    let loss = find(&surveys(&[&first, &rotten, &third]), opened).unwrap();
    assert_eq!((loss.first, loss.last), (None, 4));
    // After a crash, the file system may show blocks of a deleted log in a new one.
    let [_, later] = two_logs(&batches, 4);
    assert_eq!(find(&surveys(&[&later, &rotten]), opened), None);
    assert_eq!(find(&surveys(&[&[], &rotten]), opened), None, "it may be of any log");
}

#[test]
fn a_log_that_continues_after_damage_proves_nothing() {
    // As after a crash that tore the third batch: the next run uses its number again.
    let batches = one_client(&[10, 20, 30, 40, 50]);
    let [mut first, _] = two_logs(&batches, 4);
    let (_, starts) = log_of(&batches);
    first.truncate(starts[2] + 20);
    let [_, second] = two_logs(&batches, 2);
    assert_eq!(find_in(&surveys(&[&first, &second])), None);
}

#[test]
fn claims_with_another_key_are_ignored() {
    let key = super::super::claims::Key::from(b"another database");
    let (mut log, starts) = log_of(&[(0, 10), (0, 100), (0, 30)]);
    // As in a name that a user chose.
    let forged = key.claim(1 << 40);
    log[starts[2] + 50..][..forged.len()].copy_from_slice(&forged);
    assert_eq!(survey_of(&log).claimed, 0);
    assert_eq!(find_in(&surveys(&[&log])), None);
}
