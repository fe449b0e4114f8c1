//! Ids and names of objects.
//!
//! A segment's id in a bucket is the number of the open, its *epoch*, followed by the object's number within it. So
//! no two owners give out the same id, whatever they know of each other, and the name shows who wrote the object.

const NUMBER_BITS: u32 = 36;
const EPOCH_BITS: u32 = 64 - NUMBER_BITS;
const SUFFIX: &str = ".seg";
const VERSION: &str = "version-";
/// What the names of loans begin with: greater than the names of all objects, which begin with a digit or a letter up to `f`.
pub(super) const LOANS: &str = "loan-";

/// The last epoch that there can be.
pub(super) const EPOCH_MAX: u64 = (1 << EPOCH_BITS) - 1;

/// Returns the first id of an epoch.
pub(super) fn first_id(epoch: u64) -> u64 {
    epoch << NUMBER_BITS
}

/// Returns the epoch of an id.
pub(super) fn epoch_of(id: u64) -> u64 {
    id >> NUMBER_BITS
}

/// Returns how many more ids of its epoch follow this one.
pub(super) fn ids_left(id: u64) -> u64 {
    !id & ((1 << NUMBER_BITS) - 1)
}

/// Returns the name of an object.
pub(super) fn object_name(id: u64) -> String {
    format!("{:07x}-{:09x}{SUFFIX}", epoch_of(id), id & ((1 << NUMBER_BITS) - 1))
}

/// Returns a name less than those of all objects of this epoch and of later ones, and greater than all others.
pub(super) fn before_epoch(epoch: u64) -> String {
    format!("{epoch:07x}")
}

/// Returns the id in an object's name.
pub(super) fn parse_name(name: &str) -> Option<u64> {
    let (epoch, number) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let id = first_id(u64::from_str_radix(epoch, 16).ok().filter(|epoch| *epoch <= EPOCH_MAX)?)
        .checked_add(u64::from_str_radix(number, 16).ok()?)?;
    (object_name(id) == name).then_some(id)
}

/// Returns the name of the record of a loan.
pub(super) fn loan_name(id: u64) -> String {
    format!("{LOANS}{id:016x}")
}

/// Returns the id in the name of the record of a loan.
pub(super) fn parse_loan_name(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name.strip_prefix(LOANS)?, 16).ok()?;
    (loan_name(id) == name).then_some(id)
}

/// Returns the id in the name of a copy of another partition's version, which earlier programs have made.
pub(super) fn parse_version_name(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name.strip_prefix(VERSION)?, 16).ok()?;
    (format!("{VERSION}{id:016x}") == name).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_ids_and_parsed_back() {
        let ids = [0, 1, first_id(1), first_id(1) + 0xabc, first_id(2) - 1, first_id(EPOCH_MAX), u64::MAX];
        let names = ids.map(object_name);
        assert!(names.is_sorted());
        for (id, name) in ids.into_iter().zip(&names) {
            assert_eq!(parse_name(name), Some(id), "{name}");
            let epoch = epoch_of(id);
            assert!(before_epoch(epoch) < *name && (epoch == EPOCH_MAX || *name < before_epoch(epoch + 1)));
        }
        assert_eq!((names[3].as_str(), ids_left(u64::MAX)), ("0000001-000000abc.seg", 0));
        let strange = [
            "",
            ".seg",
            "-.seg",
            "1-1.seg",
            "0000001-000000ABC.seg",
            "+000001-000000abc.seg",
            "0000001-000000abc",
            "0000001-fffffffffff.seg",
            "fffffffff-000000abc.seg",
            "ffffffffffffffff-000000000.seg",
        ];
        for name in strange {
            assert_eq!(parse_name(name), None, "{name}");
        }
        for id in ids {
            let version = format!("version-{id:016x}");
            assert_eq!((parse_version_name(&version), parse_name(&version)), (Some(id), None));
            let loan = loan_name(id);
            assert_eq!(
                (parse_loan_name(&loan), parse_name(&loan), parse_version_name(&loan)),
                (Some(id), None, None)
            );
            assert!(object_name(u64::MAX).as_str() < LOANS && LOANS < loan.as_str());
        }
        for name in ["version-", "version-1", "VERSION", "version-00000000000000AB", "0000001-000000abc.seg"]
        {
            assert_eq!(
                (parse_version_name(name), parse_loan_name(&name.replace("version", "loan"))),
                (None, None),
                "{name}"
            );
        }
    }
}
