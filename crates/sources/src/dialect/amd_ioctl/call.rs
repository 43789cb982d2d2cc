//! The calls themselves: `DRM_IOCTL_VERSION` and `DRM_IOCTL_AMDGPU_INFO` on a render node.
#![expect(
    unsafe_code,
    reason = "an ioctl hands addresses to the kernel; everything it fills is ours and long enough"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use super::{Device, Query};

/// Group of all DRM ioctls.
const DRM: u8 = b'd';
const VERSION: Opcode = opcode::read_write::<Version>(DRM, 0);
/// The first number of a driver's own, and amdgpu's for information.
const AMDGPU_INFO: Opcode = opcode::write::<Request>(DRM, 0x40 + 0x05);

/// The kernel's `struct drm_version`.
#[repr(C)]
#[derive(Default)]
struct Version {
    numbers: [i32; 3],
    name_len: usize,
    name: usize,
    date_len: usize,
    date: usize,
    description_len: usize,
    description: usize,
}

/// `struct drm_amdgpu_info`, with the union members that sensors need.
#[repr(C)]
#[derive(Default)]
struct Request {
    answer: u64,
    answer_len: u32,
    query: u32,
    sensor: u32,
    rest: [u32; 3],
}

/// An open render node.
#[derive(Debug)]
pub(super) struct RenderNode(File);

impl RenderNode {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(path)?))
    }
}

impl Device for RenderNode {
    fn driver_name(&self, name: &mut [u8]) -> io::Result<usize> {
        let mut version = Version { name_len: name.len(), name: address(name), ..Version::default() };
        // SAFETY: the number and the struct are those of `DRM_IOCTL_VERSION`, which every DRM driver has. The kernel writes at
        // most `name_len` bytes of the name, which is borrowed until it returns, and nothing where a length is 0.
        unsafe { ioctl(&self.0, Updater::<VERSION, Version>::new(&mut version))? };
        Ok(version.name_len.min(name.len()))
    }

    fn info(&self, query: Query, answer: &mut [u8]) -> io::Result<()> {
        let (query, sensor) = query.numbers();
        let mut request = Request {
            answer_len: u32::try_from(answer.len()).map_err(io::Error::other)?,
            answer: address(answer) as u64,
            query,
            sensor,
            ..Request::default()
        };
        // SAFETY: the number and the struct are those of `DRM_IOCTL_AMDGPU_INFO`; the node was asked before whether it is of
        // amdgpu. The kernel writes at most `answer_len` bytes to the answer, which is borrowed until it returns.
        unsafe { ioctl(&self.0, Updater::<AMDGPU_INFO, Request>::new(&mut request))? };
        Ok(())
    }
}

/// The address of the kernel's output.
fn address(buffer: &mut [u8]) -> usize {
    buffer.as_mut_ptr().expose_provenance()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernel() {
        assert_eq!((VERSION, AMDGPU_INFO), (0xc040_6400, 0x4020_6445));
    }

    #[test]
    fn what_is_no_render_node_is_an_error() {
        let node = RenderNode::open(Path::new("/dev/null")).unwrap();
        assert!(node.driver_name(&mut [0; 8]).is_err());
        assert!(node.info(Query::Memory, &mut [0; 96]).is_err());
    }
}
