//! The CSV source and writers through their public surface.

mod autumn;
mod bad_input;
mod capture;
mod columns;
mod forms;
mod headers;
mod logs;
mod messages;
mod meter;
mod reading;
mod tools;
mod unsaid;
mod untold;
