//! Clocks of both vendors through the public face: captured trees, and an imitation of NVIDIA's library.

mod amd;
mod nvidia;
