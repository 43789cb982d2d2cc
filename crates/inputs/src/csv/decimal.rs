//! How a file writes its numbers: with a decimal point or comma, and what groups thousands.

use std::borrow::Cow;

use super::sample::Sample;

/// Longest text that is looked at.
const TEXT_LEN_MAX: usize = 32;

/// How the numbers of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decimal {
    /// With a decimal point: `1,234.5`.
    Point,
    /// With a decimal comma: `1.234,5`.
    Comma,
    /// The same, and `1.234` is more than a thousand.
    CommaAndGroups,
}

/// How the numbers of a file are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decimals {
    pub(super) is_comma: bool,
    /// Columns whose points all group thousands, in a file with a decimal comma.
    pub(super) grouped: Vec<usize>,
}

/// What a number shows of how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberShape {
    /// No sign, and no more than three digits.
    Short,
    /// `12,5`, `1.234,5`: the comma is a decimal one.
    Comma,
    /// `12.5`, `1,234.5`, `1,234,567`: the point is a decimal one.
    Point,
    /// `12,345`, which is either.
    ThreeBehindComma,
    /// `12.345`, which is either.
    ThreeBehindPoint,
    /// `1.234.567`: the points group thousands.
    Points,
    /// It says nothing.
    Other,
}

impl Decimals {
    /// What the cells of a sample show. A comma before three digits groups them if some number has a decimal point, or if
    /// smaller numbers of its column have none. Columns of texts say nothing, and in a file that commas part a decimal comma
    /// must be in quotes, so that a list such as `"0,1"` is none where other numbers have a point.
    pub(super) fn of(sample: &Sample, columns: usize, delimiter: u8) -> Self {
        let shapes: Vec<Vec<NumberShape>> =
            (0..columns).map(|column| sample.cells(column).filter_map(shape).collect()).collect();
        let has = |column: &[NumberShape], wanted: NumberShape| column.contains(&wanted);
        let is_numbers = |column: &&Vec<NumberShape>| {
            2 * column.iter().filter(|shape| **shape == NumberShape::Other).count() <= column.len()
        };
        let numbers: Vec<&Vec<NumberShape>> = shapes.iter().filter(is_numbers).collect();
        let is_pointed = |column: &[NumberShape]| {
            has(column, NumberShape::Point) || has(column, NumberShape::ThreeBehindPoint)
        };
        let count = |is: &dyn Fn(&[NumberShape]) -> bool| numbers.iter().filter(|column| is(column)).count();
        let with_comma = count(&|column| has(column, NumberShape::Comma) && !is_pointed(column));
        let with_point = count(&|column| has(column, NumberShape::Point) && !has(column, NumberShape::Comma));
        let is_sure = with_comma > 0
            && if delimiter == b',' { count(&is_pointed) == 0 } else { with_comma >= with_point };
        let is_open = |column: &[NumberShape]| {
            has(column, NumberShape::ThreeBehindComma)
                && !is_pointed(column)
                && !has(column, NumberShape::Short)
        };
        let is_comma = is_sure || (delimiter != b',' && with_point == 0 && count(&is_open) > 0);
        let is_grouped = |column: &Vec<NumberShape>| {
            let mut groups = 0;
            column.iter().all(|shape| {
                groups += u32::from(matches!(shape, NumberShape::ThreeBehindPoint | NumberShape::Points));
                matches!(
                    shape,
                    NumberShape::ThreeBehindPoint
                        | NumberShape::Points
                        | NumberShape::Short
                        | NumberShape::Comma
                )
            }) && groups > 0
        };
        let grouped = shapes.iter().enumerate().filter(|(_, column)| is_comma && is_grouped(column));
        Self { is_comma, grouped: grouped.map(|(column, _)| column).collect() }
    }

    /// How the numbers of this column are written.
    pub(super) fn of_column(&self, column: usize) -> Decimal {
        match self.is_comma {
            false => Decimal::Point,
            true if self.grouped.contains(&column) => Decimal::CommaAndGroups,
            true => Decimal::Comma,
        }
    }
}

/// What the number at the beginning of a text shows.
fn shape(text: &str) -> Option<NumberShape> {
    if text.is_empty() || text.len() > TEXT_LEN_MAX {
        return None;
    }
    if let Some(shape) = usual_shape(text.as_bytes()) {
        return Some(shape);
    }
    let joined = joined(text.as_bytes()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = joined.as_deref().unwrap_or(text);
    let number = text.split_once(' ').map_or(text, |(number, _)| number);
    let number = number.strip_prefix(['-', '+']).unwrap_or(number);
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !number.split([',', '.']).all(is_digits) {
        return Some(NumberShape::Other);
    }
    let is_grouped = |text: &str, sign: char| {
        let mut groups = text.split(sign);
        let first = groups.next().unwrap_or_default();
        (1..=3).contains(&first.len()) && !first.starts_with('0') && groups.all(|group| group.len() == 3)
    };
    let count = |sign: char| number.matches(sign).count();
    let has_whole = |sign: char, groups: char| {
        let parts = number.rsplit_once(sign);
        parts.is_some_and(|(whole, fraction)| is_grouped(whole, groups) && !fraction.contains(groups))
    };
    Some(match (count(','), count('.')) {
        (0, 0) if number.len() <= 3 => NumberShape::Short,
        (1, 0) if is_grouped(number, ',') => NumberShape::ThreeBehindComma,
        (0, 1) if is_grouped(number, '.') => NumberShape::ThreeBehindPoint,
        (1, 0) => NumberShape::Comma,
        (0, 1) => NumberShape::Point,
        (0, _) if is_grouped(number, '.') => NumberShape::Points,
        (_, 0) if is_grouped(number, ',') => NumberShape::Point,
        (1, _) if has_whole(',', '.') => NumberShape::Comma,
        (_, 1) if has_whole('.', ',') => NumberShape::Point,
        _ => NumberShape::Other,
    })
}

/// The shape of what most cells are: a number without a sign, a comma or a unit, or a text that begins with a letter. None: it takes a
/// closer look.
fn usual_shape(cell: &[u8]) -> Option<NumberShape> {
    if cell.first().is_some_and(u8::is_ascii_alphabetic) {
        return Some(NumberShape::Other);
    }
    let mut parts = cell.split(|byte| *byte == b'.');
    let (whole, fraction) = (parts.next()?, parts.next());
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if parts.next().is_some() || !is_number(whole) || !fraction.is_none_or(is_number) {
        return None;
    }
    let is_group = (1..=3).contains(&whole.len()) && whole.first() != Some(&b'0');
    Some(match fraction {
        None if whole.len() <= 3 => NumberShape::Short,
        None => NumberShape::Other,
        Some(fraction) if is_group && fraction.len() == 3 => NumberShape::ThreeBehindPoint,
        Some(_) => NumberShape::Point,
    })
}

/// What stands between thousands beside points and commas: a blank, an apostrophe, and their typographic kin.
const BETWEEN_THOUSANDS: [&str; 6] = [" ", "'", "\u{a0}", "\u{202f}", "\u{2009}", "\u{2019}"];

/// A cell whose number has blanks or apostrophes between its thousands (`1 432,5 W`, `6'162`) without them; none: it has
/// no such number.
pub(super) fn joined(cell: &[u8]) -> Option<Vec<u8>> {
    let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let signs = usize::from(cell.first().is_some_and(|byte| b"+-".contains(byte)));
    let first = digits(cell.get(signs..)?);
    let is_first = (1..=3).contains(&first) && cell.get(signs) != Some(&b'0');
    let (head, mut rest) = cell.split_at_checked(signs + first).filter(|_| is_first)?;
    let between = BETWEEN_THOUSANDS.iter().find(|sign| rest.starts_with(sign.as_bytes()))?;
    let mut written = head.to_vec();
    while let Some(group) = rest.strip_prefix(between.as_bytes()).filter(|group| digits(group) == 3) {
        let (group, behind) = group.split_at_checked(3)?;
        written.extend_from_slice(group);
        rest = behind;
    }
    // A date, a list, a fourth digit are no number.
    let is_other = |text: &[u8]| text.iter().any(u8::is_ascii_digit);
    let fraction = rest.strip_prefix(b".").or_else(|| rest.strip_prefix(b","));
    let behind = fraction.map_or(rest, |rest| rest.get(digits(rest)..).unwrap_or_default());
    (written.len() > head.len() && !is_other(behind)).then(|| [&written, rest].concat())
}

/// A cell with its number written as programs do: with a decimal point, and nothing between thousands.
pub(super) fn pointed(cell: &[u8], decimal: Decimal) -> Cow<'_, [u8]> {
    let cell = cell.trim_ascii();
    if decimal != Decimal::Point
        && let Some(joined) = joined(cell)
    {
        return Cow::Owned(pointed(&joined, decimal).into_owned());
    }
    let is_number = |byte: &u8| byte.is_ascii_digit() || b"+-.,".contains(byte);
    let len = cell.iter().position(|byte| !is_number(byte)).unwrap_or(cell.len());
    let has_groups = |number: &[u8]| decimal == Decimal::CommaAndGroups && number.contains(&b'.');
    let parts = cell.split_at_checked(len);
    let Some((number, rest)) = parts.filter(|(number, _)| number.contains(&b',') || has_groups(number))
    else {
        return Cow::Borrowed(cell);
    };
    let written: Vec<u8> = if decimal == Decimal::Point {
        let whole = number.split(|byte| *byte == b'.').next().unwrap_or_default();
        // 1,234.5 and 1,234,567, but not 12,5.
        if !whole.split(|byte| *byte == b',').skip(1).all(|group| group.len() == 3) {
            return Cow::Borrowed(cell);
        }
        number.iter().filter(|byte| **byte != b',').copied().collect()
    } else {
        let kept = number.iter().filter(|byte| **byte != b'.');
        kept.map(|byte| if *byte == b',' { b'.' } else { *byte }).collect()
    };
    Cow::Owned([&written, rest].concat())
}
