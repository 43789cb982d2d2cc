//! Recordings through the public face: how they are written, and how runs are compared.

mod compare;
mod recorder;
