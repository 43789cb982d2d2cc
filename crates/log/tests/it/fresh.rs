//! Files that appear whole or not at all.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gpuvitals_log::Fresh;

/// The names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_place_has_the_old_file_until_it_has_the_new_one() {
    let directory = tempfile::tempdir().expect("directory");
    let place = directory.path().join("place");
    std::fs::write(&place, "old").expect("old file");
    let read = || std::fs::read_to_string(&place).expect("file");
    let fresh = Fresh::create(&place).expect("fresh file");
    fresh.file().write_all(b"newer").expect("write");
    assert_eq!(read(), "old");
    let between = || {
        assert_eq!(read(), "old");
        assert_eq!(names(directory.path()), ["place", "place.tmp"]);
        Ok(())
    };
    assert_eq!(fresh.put_after(between).expect("put"), 5);
    assert_eq!((read(), names(directory.path())), ("newer".to_owned(), vec!["place".to_owned()]));
}

#[test]
fn a_file_that_does_not_get_its_place_is_removed() {
    let directory = tempfile::tempdir().expect("directory");
    let place = directory.path().join("place");
    drop(Fresh::create(&place).expect("fresh file"));
    assert!(names(directory.path()).is_empty());

    let fresh = Fresh::create(&place).expect("fresh file");
    let error = fresh.put_after(|| Err(std::io::Error::other("no"))).expect_err("a step that fails");
    assert_eq!(error.to_string(), "no");
    assert!(names(directory.path()).is_empty());

    std::fs::create_dir(&place).expect("a directory in its place");
    let fresh = Fresh::create(&place).expect("fresh file");
    fresh.put().expect_err("a directory is not replaced");
    assert_eq!(names(directory.path()), ["place"]);
}

#[test]
fn a_file_of_somebody_else_beside_the_place_is_not_touched() {
    let directory = tempfile::tempdir().expect("directory");
    let (place, beside) = (directory.path().join("place"), directory.path().join("beside"));
    std::fs::write(&beside, "of somebody else").expect("other file");
    Fresh::create_new(&place, beside.clone()).expect_err("the name is taken");
    assert_eq!(std::fs::read_to_string(&beside).expect("file"), "of somebody else");
}

#[test]
fn only_its_user_reads_a_private_file() {
    let directory = tempfile::tempdir().expect("directory");
    let (place, beside) = (directory.path().join("place"), directory.path().join("beside"));
    let fresh = Fresh::create_private(&place, beside.clone()).expect("fresh file");
    assert_eq!(fresh.path(), beside);
    fresh.put().expect("put");
    let mode = std::fs::metadata(&place).expect("file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(names(directory.path()), ["place"]);
}
