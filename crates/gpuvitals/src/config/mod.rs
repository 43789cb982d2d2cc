//! Configuration: flags over environment over file over defaults.
//!
//! Each part of the program declares its section with `settings!`: a field with its documentation, default, range and flag.
//! From that come the flag and its help, the key of the file, the environment variable and `docs/config.yaml`. A new
//! section is such a declaration and a line in [`Config`].

mod layers;
mod render;
mod sections;

pub(crate) use layers::{Layers, with_shared};
pub(crate) use sections::{Config, SECTIONS, settings};

/// The commented defaults.
pub(crate) fn defaults() -> String {
    const HEAD: &str = "# gpuvitals: every setting with its default, as `gpuvitals config default` prints it. A file of yours needs only the\n\
        # lines it changes. Flags win over the environment, the environment over a file, a file over these defaults.\n\
        # An environment variable is the path of the key in capitals: GPUVITALS_API_PORT, GPUVITALS_STORE_DIR …\n\
        # Durations are written 500ms, 30s, 5m, 1h, and a number alone is seconds; sizes 64KiB, 256MiB, 2GiB, alone bytes.\n\n";
    let sections = render::render(SECTIONS, |setting| ((setting.default)(), setting.comment()));
    format!("{HEAD}{sections}")
}
