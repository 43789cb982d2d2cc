//! The whole program as a user runs it: files in, JSON out, kills and full disks in between.

mod bad_input;
mod capture;
mod disk;
mod live;
mod server;
