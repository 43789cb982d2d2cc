//! Tables of APUs, v2.x and v3.x: field, offset in bytes, type, number of elements.

use super::field::Field as F;
use super::layout::Row;
use super::value::Kind::{U16, U32, U64};

/// v2.0: Renoir with old drivers.
pub(super) const V2_0: &[Row] = &[
    (F::SystemClockCounter, 8, U64, 1),
    (F::TemperatureGfx, 16, U16, 1),
    (F::TemperatureSoc, 18, U16, 1),
    (F::AverageGfxActivity, 40, U16, 1),
    (F::AverageMmActivity, 42, U16, 1),
    (F::AverageSocketPower, 44, U16, 1),
    (F::AverageGfxclk, 68, U16, 1),
    (F::AverageSocclk, 70, U16, 1),
    (F::AverageUclk, 72, U16, 1),
    (F::AverageFclk, 74, U16, 1),
    (F::AverageVclk, 76, U16, 1),
    (F::AverageDclk, 78, U16, 1),
    (F::CurrentGfxclk, 80, U16, 1),
    (F::CurrentSocclk, 82, U16, 1),
    (F::CurrentUclk, 84, U16, 1),
    (F::CurrentFclk, 86, U16, 1),
    (F::CurrentVclk, 88, U16, 1),
    (F::CurrentDclk, 90, U16, 1),
    (F::ThrottleStatus, 112, U32, 1),
];

/// v2.1 to 2.4, each the beginning of the next: Renoir to Phoenix, Van Gogh.
pub(super) const V2_4: &[Row] = &[
    (F::TemperatureGfx, 4, U16, 1),
    (F::TemperatureSoc, 6, U16, 1),
    (F::AverageGfxActivity, 28, U16, 1),
    (F::AverageMmActivity, 30, U16, 1),
    (F::SystemClockCounter, 32, U64, 1),
    (F::AverageSocketPower, 40, U16, 1),
    (F::AverageGfxclk, 64, U16, 1),
    (F::AverageSocclk, 66, U16, 1),
    (F::AverageUclk, 68, U16, 1),
    (F::AverageFclk, 70, U16, 1),
    (F::AverageVclk, 72, U16, 1),
    (F::AverageDclk, 74, U16, 1),
    (F::CurrentGfxclk, 76, U16, 1),
    (F::CurrentSocclk, 78, U16, 1),
    (F::CurrentUclk, 80, U16, 1),
    (F::CurrentFclk, 82, U16, 1),
    (F::CurrentVclk, 84, U16, 1),
    (F::CurrentDclk, 86, U16, 1),
    (F::ThrottleStatus, 108, U32, 1),
    (F::IndepThrottleStatus, 120, U64, 1),
];

/// v3.0: Strix, Krackan.
pub(super) const V3_0: &[Row] = &[
    (F::TemperatureGfx, 4, U16, 1),
    (F::TemperatureSoc, 6, U16, 1),
    (F::AverageGfxActivity, 42, U16, 1),
    (F::AverageVcnActivity, 44, U16, 1),
    (F::SystemClockCounter, 104, U64, 1),
    (F::AverageSocketPower, 112, U32, 1),
    (F::AverageGfxclk, 174, U16, 1),
    (F::AverageSocclk, 176, U16, 1),
    (F::AverageFclk, 182, U16, 1),
    (F::AverageVclk, 184, U16, 1),
    (F::AverageUclk, 186, U16, 1),
    (F::ThrottleResidencyProchot, 228, U32, 1),
    (F::ThrottleResidencySpl, 232, U32, 1),
    (F::ThrottleResidencyFppt, 236, U32, 1),
    (F::ThrottleResidencySppt, 240, U32, 1),
    (F::ThrottleResidencyThmCore, 244, U32, 1),
    (F::ThrottleResidencyThmGfx, 248, U32, 1),
    (F::ThrottleResidencyThmSoc, 252, U32, 1),
];
