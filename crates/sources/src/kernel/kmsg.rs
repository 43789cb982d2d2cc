//! `/dev/kmsg`: each read gives a record, and a reader that is too slow finds a gap in their numbers.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::record::{KernelRecord, parse};

/// Longest record; the kernel's are 8 KiB at most.
const RECORD_LEN_MAX: usize = 32 << 10;

/// The kernel's log from now on.
#[derive(Debug)]
pub(super) struct Kmsg {
    file: File,
    buffer: Vec<u8>,
    /// The number that the next record has if none is missing.
    next: Option<u64>,
    lost: u64,
}

impl Kmsg {
    /// Opens it, never to wait, behind what it has now.
    ///
    /// # Errors
    /// If it is missing, is no device, or may not be read.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.file_type().is_char_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no device"));
        }
        file.seek(SeekFrom::End(0))?;
        Ok(Self::over(file))
    }

    /// Over a file that gives a record with each read.
    fn over(file: File) -> Self {
        Self { file, buffer: vec![0; RECORD_LEN_MAX], next: None, lost: 0 }
    }

    /// The next record, if one comes within this time that is one.
    ///
    /// # Errors
    /// If it cannot be read any more.
    pub(super) fn next(&mut self, patience: Duration) -> io::Result<Option<KernelRecord>> {
        let record = match rustix::io::read(&self.file, self.buffer.as_mut_slice()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => parse(self.buffer.get(..len).unwrap_or_default()),
            Err(Errno::AGAIN) => {
                self.wait(patience)?;
                None
            }
            // The kernel has overwritten records that were not read yet; their numbers are missing in the next one.
            Err(Errno::PIPE | Errno::INTR) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(sequence) = record.as_ref().and_then(|record| record.sequence) {
            let missing = self.next.map_or(0, |next| sequence.saturating_sub(next));
            self.lost = self.lost.saturating_add(missing);
            self.next = sequence.checked_add(1);
        }
        Ok(record)
    }

    fn wait(&self, patience: Duration) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Records that were overwritten before they were read.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    /// A log to which records can be written: a datagram is read whole, as a record is.
    fn log() -> (UnixDatagram, Kmsg) {
        let (writer, reader) = UnixDatagram::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        (writer, Kmsg::over(File::from(OwnedFd::from(reader))))
    }

    #[test]
    fn a_gap_in_the_numbers_is_counted() {
        let (writer, mut log) = log();
        assert_eq!(log.next(NO_TIME).unwrap(), None);
        for sequence in [7, 8, 12, 13] {
            writer.send(format!("4,{sequence},1,-;line {sequence}\n").as_bytes()).unwrap();
        }
        let texts: Vec<_> = (0..4).map(|_| log.next(NO_TIME).unwrap().unwrap().text).collect();
        assert_eq!(texts, ["line 7", "line 8", "line 12", "line 13"]);
        assert_eq!(log.lost(), 3);
        assert_eq!(log.next(NO_TIME).unwrap(), None);
    }

    #[test]
    fn hostile_records_end_nothing() {
        let (writer, mut log) = log();
        let long = [b"4,2,1,-;".to_vec(), vec![0xff; 8 << 10]].concat();
        for record in [&b"\xff\x00\x1b"[..], b"4,18446744073709551615,1,-;x", &long[..], b"4,3,1,-;end"] {
            writer.send(record).unwrap();
        }
        assert_eq!(log.next(NO_TIME).unwrap(), None);
        let texts: Vec<_> = (0..3).map(|_| log.next(NO_TIME).unwrap().unwrap().text).collect();
        assert_eq!((texts[0].as_str(), texts[2].as_str()), ("x", "end"));
        assert!(texts[1].chars().all(|c| c == '\u{fffd}'));
    }

    #[test]
    fn what_is_no_device_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kmsg");
        assert_eq!(Kmsg::open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "4,1,1,-;a").unwrap();
        assert_eq!(Kmsg::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
