//! A file of sysfs or procfs that is kept open and read again and again.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// Most bytes that are read of one file: `stat` of procfs has some 80 for each CPU and some thousands for the interrupts.
/// The largest attribute known of sysfs has 4 KiB.
pub const READ_LEN_MAX: usize = 512 << 10;
/// Size of the first read: the kernel gives at most a page of most files.
const PAGE_LEN: usize = 4096;
/// Longest line or record of the files that are given in whole ones (`ras/gpu_vram_bad_pages`, `vmstat`).
const RECORD_LEN_MAX: usize = 256;

/// A kept-open file. kernfs generates the content anew for every read at offset 0, so nothing is reopened.
#[derive(Debug)]
pub struct PinnedFile {
    file: File,
    buffer: Vec<u8>,
    /// Whether it has no offsets (a pipe) and is read as it comes.
    stream: bool,
}

impl PinnedFile {
    /// Opens it for reading.
    ///
    /// # Errors
    /// The kernel's error: missing, no right, device gone.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: vec![0; PAGE_LEN], stream: false })
    }

    /// Its present content, whole.
    ///
    /// # Errors
    /// The kernel's error at this reading; `ENODEV` means that the driver has released the device, and the
    /// file is dead.
    pub fn read(&mut self) -> io::Result<&[u8]> {
        let mut len = 0;
        loop {
            let free = self.buffer.get_mut(len..).unwrap_or_default();
            let taken = if self.stream {
                rustix::io::read(&self.file, &mut *free)
            } else {
                rustix::io::pread(&self.file, &mut *free, len as u64)
            };
            let room = free.len();
            match taken {
                Ok(taken) => {
                    len += taken;
                    if len >= READ_LEN_MAX || self.is_whole(taken, room) {
                        return Ok(self.buffer.get(..len).unwrap_or_default());
                    }
                    if self.buffer.len() - len < PAGE_LEN {
                        self.buffer.resize((self.buffer.len() * 2).min(READ_LEN_MAX), 0);
                    }
                }
                Err(Errno::SPIPE) if !self.stream => self.stream = true,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether a read of this many bytes, with this much room, reached the end of the file: one that leaves
    /// less than a record of the page or the room may have left out the next.
    fn is_whole(&self, taken: usize, room: usize) -> bool {
        let of_page = match taken % PAGE_LEN {
            0 => 0,
            begun => PAGE_LEN - begun,
        };
        let left = room - taken;
        taken == 0 || (self.stream && left > 0) || of_page.min(left) >= RECORD_LEN_MAX
    }

    /// Its present content as text without the blanks, line ends and NULs around it; bytes that are no UTF-8 end it.
    ///
    /// # Errors
    /// As [`PinnedFile::read`].
    pub fn read_text(&mut self) -> io::Result<&str> {
        let bytes = self.read()?;
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => bytes
                .get(..error.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok())
                .unwrap_or_default(),
        };
        Ok(text.trim_matches(|c: char| c.is_whitespace() || c == '\0'))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::RwLock;

    use super::*;

    #[test]
    fn content_is_read_anew_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        std::fs::write(&path, " 12\n\0").unwrap();
        let mut file = PinnedFile::open(&path).unwrap();
        assert_eq!(file.read_text().unwrap(), "12");
        std::fs::write(&path, "7").unwrap();
        assert_eq!(file.read_text().unwrap(), "7");
        for len in [PAGE_LEN - 1, PAGE_LEN, PAGE_LEN + 1, READ_LEN_MAX, READ_LEN_MAX + 9] {
            std::fs::write(&path, vec![b'x'; len]).unwrap();
            assert_eq!(file.read().unwrap().len(), len.min(READ_LEN_MAX), "{len}");
        }
        std::fs::write(&path, [b'a', 0xff, b'b']).unwrap();
        assert_eq!(file.read_text().unwrap(), "a");
    }

    #[test]
    fn a_file_that_the_kernel_gives_in_whole_lines_is_read_to_its_end() {
        // Each thread has a stack, and each stack is a line of some fifty bytes; that of the process is among the last.
        let end = RwLock::new(());
        std::thread::scope(|scope| {
            // Let go of when the test fails, too: the scope waits for each thread.
            let held = end.write().unwrap();
            for _ in 0..128 {
                scope.spawn(|| drop(end.read()));
            }
            let mut file = PinnedFile::open(Path::new("/proc/self/maps")).unwrap();
            let is_whole = [(); 2].map(|()| {
                let text = file.read_text().unwrap();
                text.len() > PAGE_LEN && text.contains("[stack]")
            });
            drop(held);
            assert_eq!(is_whole, [true, true], "also when the buffer has grown");
        });
    }

    #[test]
    fn a_pipe_is_read_as_it_comes() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut file = PinnedFile {
            file: File::from(std::os::fd::OwnedFd::from(reader)),
            buffer: vec![0; PAGE_LEN],
            stream: false,
        };
        io::Write::write_all(&mut writer, b"250000000\n").unwrap();
        assert_eq!(file.read_text().unwrap(), "250000000");
    }
}
