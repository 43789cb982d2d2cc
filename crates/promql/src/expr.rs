//! A query as it is evaluated: checked, with its selectors apart from it.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::history::PatternRoom;
use gpuvitals_core::time::MINUTE_NS;
use promql_parser::label::Labels;
use promql_parser::parser::token::{self, TokenType};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{self, AtModifier, BinModifier, Expr, LabelModifier, Offset, VectorSelector};

use crate::error::PromError;
use crate::function::{Elementwise, OverRange};
use crate::grid::{Grid, Lookup};
use crate::needs::{Exported, Fetch, Needs};
use crate::point::PointField;
use crate::series::SortOrder;
use crate::text::{self, DEPTH_MAX, too_deep};

/// Most instants of a subquery.
const SUBQUERY_STEPS_MAX: usize = 100_000;
/// How long an instant looks back for a value.
pub(crate) const LOOKBACK_NS: i64 = 5 * MINUTE_NS;
/// The step of a subquery that names none.
const SUBQUERY_STEP_NS: i64 = MINUTE_NS;

/// A checked query.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) root: Node,
    pub(crate) fetches: Vec<Fetch>,
}

/// A part of a query.
#[derive(Debug)]
pub(crate) enum Node {
    Number(f64),
    Text(String),
    /// The instant itself, in seconds.
    Time,
    /// The newest point before each instant: its value, or its time.
    Instant {
        fetch: usize,
        lookup: Lookup,
        field: PointField,
    },
    /// A function of the values before each instant.
    Over(Box<Over>),
    /// All values of a time, for an instant query that asks for nothing else.
    All(Box<All>),
    Call(Elementwise, Vec<Node>),
    Aggregate(Box<Aggregate>),
    Binary(Box<Binary>),
    Negated(Box<Node>),
    /// `scalar(v)`: the value of the only series.
    Scalar(Box<Node>),
    /// `vector(s)`: a series without labels.
    Vector(Box<Node>),
    /// `absent(v)`, with the labels that its matchers tell.
    Absent(Box<Node>, Vec<(Arc<str>, Arc<str>)>),
    /// `label_replace(v, destination, replacement, source, pattern)`.
    LabelReplace {
        of: Box<Node>,
        to: Arc<str>,
        with: String,
        from: String,
        pattern: regex::Regex,
    },
    /// `label_join(v, destination, separator, sources…)`.
    LabelJoin {
        of: Box<Node>,
        to: Arc<str>,
        with: String,
        from: Vec<String>,
    },
    /// `sort` and `sort_desc`.
    Sorted(Box<Node>, SortOrder),
}

/// The values of a time.
#[derive(Debug)]
pub(crate) struct All {
    pub(crate) of: Ranged,
    pub(crate) range_ns: i64,
    pub(crate) lookup: Lookup,
}

/// A function of the values before each instant.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) function: OverRange,
    pub(crate) of: Ranged,
    pub(crate) range_ns: i64,
    pub(crate) lookup: Lookup,
    pub(crate) parameter: Option<Node>,
    /// The labels that its matchers tell, which `absent_over_time` answers with.
    pub(crate) told: Vec<(Arc<str>, Arc<str>)>,
}

/// Where a range's values come from.
#[derive(Debug)]
pub(crate) enum Ranged {
    Fetch(usize),
    Subquery(Node, Grid),
}

/// An aggregation over series.
#[derive(Debug)]
pub(crate) struct Aggregate {
    pub(crate) how: AggregateOp,
    pub(crate) of: Node,
    pub(crate) parameter: Option<Node>,
    /// The labels that are kept, or dropped; without any all series are one group.
    pub(crate) by: Grouping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregateOp {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    Topk,
    Bottomk,
    Quantile,
    CountValues,
}

/// Labels by which series are grouped or matched.
#[derive(Debug, Clone)]
pub(crate) enum Grouping {
    By(Vec<Arc<str>>),
    Without(Vec<Arc<str>>),
}

/// An operator between two parts.
#[derive(Debug)]
pub(crate) struct Binary {
    pub(crate) op: BinaryOp,
    pub(crate) left: Node,
    pub(crate) right: Node,
    pub(crate) is_bool: bool,
    pub(crate) on: Grouping,
    /// Which side may have several series for one of the other, and the labels that it takes from there.
    pub(crate) many: ManySide,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManySide {
    Neither,
    Left(Vec<Arc<str>>),
    Right(Vec<Arc<str>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Unless,
}

impl BinaryOp {
    pub(crate) fn compares(self) -> bool {
        use BinaryOp as Op;
        matches!(
            self,
            Op::Equal | Op::NotEqual | Op::Less | Op::LessOrEqual | Op::Greater | Op::GreaterOrEqual
        )
    }

    pub(crate) fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }
}

/// Reads a query.
///
/// # Errors
/// When it is no PromQL, too long or too deep, or uses what is not supported.
pub(crate) fn plan(text: &str, grid: Grid, room: &mut PatternRoom) -> Result<Plan, PromError> {
    let parsed = parsed(text, room)?;
    let is_by_steps = grid.range_end_ns.is_some();
    let refused = match parsed.value_type() {
        ValueType::String if is_by_steps => Some("string"),
        ValueType::Matrix if is_by_steps => Some("range vector"),
        _ => None,
    };
    if let Some(kind) = refused {
        return Err(PromError::Syntax(format!(
            "invalid parameter \"query\": invalid expression type \"{kind}\" for range query, must be Scalar or instant Vector"
        )));
    }
    let mut planning = Planning { whole: grid, exported: Exported::of(text), fetches: Vec::new(), room };
    let root = match unwrapped(&parsed) {
        range @ (Expr::MatrixSelector(_) | Expr::Subquery(_)) => {
            let (of, range_ns, lookup) = planning.range(range, grid, Needs::Every, 0)?;
            Node::All(Box::new(All { of, range_ns, lookup }))
        }
        _ => planning.node(&parsed, grid, 0)?,
    };
    Ok(Plan { root, fetches: planning.fetches })
}

/// Parses a query.
///
/// # Errors
/// When it is no PromQL, too long or too deep.
pub(crate) fn parsed(text: &str, room: &mut PatternRoom) -> Result<Expr, PromError> {
    text::check(text, room)?;
    // The parser panics on some durations, such as `offset Inf` (promql-parser 0.11.1).
    let parsed = std::panic::catch_unwind(|| parser::parse(text));
    let parsed =
        parsed.map_err(|_| PromError::Syntax("the text cannot be read: is a duration too long?".to_owned()));
    parsed?.map_err(PromError::Syntax)
}

/// The selectors found so far.
struct Planning<'a> {
    whole: Grid,
    exported: Exported,
    fetches: Vec<Fetch>,
    /// For the patterns of `label_replace`.
    room: &'a mut PatternRoom,
}

impl Planning<'_> {
    fn node(&mut self, expr: &Expr, grid: Grid, depth: usize) -> Result<Node, PromError> {
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
        let depth = depth + 1;
        Ok(match expr {
            Expr::NumberLiteral(number) => Node::Number(number.val),
            Expr::StringLiteral(text) => Node::Text(text.val.clone()),
            Expr::Paren(paren) => self.node(&paren.expr, grid, depth)?,
            Expr::Unary(unary) => Node::Negated(Box::new(self.node(&unary.expr, grid, depth)?)),
            Expr::VectorSelector(selector) => self.instant(selector, grid, PointField::Value)?,
            Expr::Aggregate(aggregate) => self.aggregate(aggregate, grid, depth)?,
            Expr::Binary(binary) => {
                let op = binary_op(binary.op)?;
                let modifier = binary.modifier.as_ref();
                let (on, many) = matching(modifier)?;
                Node::Binary(Box::new(Binary {
                    op,
                    left: self.node(&binary.lhs, grid, depth)?,
                    right: self.node(&binary.rhs, grid, depth)?,
                    is_bool: modifier.is_some_and(|modifier| modifier.return_bool),
                    on,
                    many,
                }))
            }
            Expr::Call(call) => self.call(call, grid, depth)?,
            Expr::MatrixSelector(_) | Expr::Subquery(_) => {
                return Err(PromError::Syntax(
                    "a range of values is an argument of a function only".to_owned(),
                ));
            }
            Expr::Extension(_) => return Err(PromError::Unsupported("an extension".to_owned())),
        })
    }

    fn instant(
        &mut self,
        selector: &VectorSelector,
        grid: Grid,
        field: PointField,
    ) -> Result<Node, PromError> {
        let lookup = self.lookup(selector.at.as_ref(), selector.offset.as_ref())?;
        let fetch = self.fetch(selector, lookup.grid(grid), LOOKBACK_NS, Needs::Newest);
        Ok(Node::Instant { fetch, lookup, field })
    }

    /// Where the values of a range come from, how long it is, and when it ends.
    fn range(
        &mut self,
        range: &Expr,
        grid: Grid,
        needs: Needs,
        depth: usize,
    ) -> Result<(Ranged, i64, Lookup), PromError> {
        match range {
            Expr::MatrixSelector(matrix) => {
                let lookup = self.lookup(matrix.vs.at.as_ref(), matrix.vs.offset.as_ref())?;
                let range_ns = span(matrix.range)?;
                let fetch = self.fetch(&matrix.vs, lookup.grid(grid), range_ns, needs);
                Ok((Ranged::Fetch(fetch), range_ns, lookup))
            }
            Expr::Subquery(subquery) => {
                let lookup = self.lookup(subquery.at.as_ref(), subquery.offset.as_ref())?;
                let range_ns = span(subquery.range)?;
                let step_ns = subquery.step.map(span).transpose()?.unwrap_or(SUBQUERY_STEP_NS);
                let inner = inner_grid(lookup.grid(grid), range_ns, step_ns)?;
                Ok((Ranged::Subquery(self.node(&subquery.expr, inner, depth)?, inner), range_ns, lookup))
            }
            _ => Err(PromError::Syntax("the function needs a range of values".to_owned())),
        }
    }

    /// Number of a selector's fetch; equal ones are fetched once.
    fn fetch(&mut self, selector: &VectorSelector, grid: Grid, back_ns: i64, needs: Needs) -> usize {
        let (name, matchers) = (selector.name.clone(), selector.matchers.clone());
        let fetch = Fetch { name, matchers, exported: self.exported, grid, back_ns, needs };
        self.fetches.iter().position(|known| *known == fetch).unwrap_or_else(|| {
            self.fetches.push(fetch);
            self.fetches.len() - 1
        })
    }

    fn lookup(&self, at: Option<&AtModifier>, offset: Option<&Offset>) -> Result<Lookup, PromError> {
        let offset_ns = match offset {
            None => 0,
            Some(Offset::Pos(by)) => nanoseconds(*by)?,
            Some(Offset::Neg(by)) => -nanoseconds(*by)?,
        };
        let at_ns = match at {
            None => None,
            Some(AtModifier::Start) => Some(self.whole.start_ns),
            Some(AtModifier::End) => Some(self.whole.range_end_ns.unwrap_or(self.whole.start_ns)),
            Some(AtModifier::At(time)) => {
                let since = time.duration_since(std::time::UNIX_EPOCH);
                Some(since.map_or_else(|before| nanoseconds(before.duration()).map(|ns| -ns), nanoseconds)?)
            }
        };
        Ok(Lookup { at_ns, offset_ns })
    }

    fn aggregate(
        &mut self,
        aggregate: &parser::AggregateExpr,
        grid: Grid,
        depth: usize,
    ) -> Result<Node, PromError> {
        let how = aggregate_op(aggregate.op)?;
        let parameter = aggregate.param.as_ref().map(|param| self.node(param, grid, depth)).transpose()?;
        let by = match &aggregate.modifier {
            Some(modifier) => grouping(modifier),
            None => Grouping::By(Vec::new()),
        };
        let of = self.node(&aggregate.expr, grid, depth)?;
        Ok(Node::Aggregate(Box::new(Aggregate { how, of, parameter, by })))
    }

    fn call(&mut self, call: &parser::Call, grid: Grid, depth: usize) -> Result<Node, PromError> {
        let name = call.func.name;
        let arguments: Vec<&Expr> = call.args.args.iter().map(|expr| unwrapped(expr)).collect();
        if let Some(function) = OverRange::by_name(name) {
            return self.over(function, &arguments, grid, depth);
        }
        let inner = |planning: &mut Self, at: usize| match arguments.get(at) {
            Some(expr) => planning.node(expr, grid, depth).map(Box::new),
            None => Err(PromError::Syntax(format!("{name} lacks an argument"))),
        };
        let quoted = |at: usize| match arguments.get(at) {
            Some(Expr::StringLiteral(literal)) => Ok(literal.val.clone()),
            _ => Err(PromError::Syntax(format!("argument {} of {name} must be a text", at + 1))),
        };
        Ok(match name {
            "time" => Node::Time,
            "pi" => Node::Number(std::f64::consts::PI),
            "scalar" => Node::Scalar(inner(self, 0)?),
            "vector" => Node::Vector(inner(self, 0)?),
            "sort" => Node::Sorted(inner(self, 0)?, SortOrder::SmallestFirst),
            "sort_desc" => Node::Sorted(inner(self, 0)?, SortOrder::LargestFirst),
            "absent" => {
                let told = arguments.first().map(|expr| told(expr)).unwrap_or_default();
                Node::Absent(inner(self, 0)?, told)
            }
            "timestamp" => match arguments.first() {
                Some(Expr::VectorSelector(selector)) => self.instant(selector, grid, PointField::Time)?,
                _ => Node::Call(Elementwise::Now, vec![*inner(self, 0)?]),
            },
            "label_replace" => {
                let pattern = text::compile(&quoted(4)?, self.room)?;
                let to = label(&quoted(1)?)?;
                Node::LabelReplace { of: inner(self, 0)?, to, with: quoted(2)?, from: quoted(3)?, pattern }
            }
            "label_join" => {
                let from = (3..arguments.len()).map(quoted).collect::<Result<Vec<_>, _>>()?;
                from.iter().try_for_each(|name| label(name).map(drop))?;
                Node::LabelJoin { of: inner(self, 0)?, to: label(&quoted(1)?)?, with: quoted(2)?, from }
            }
            _ => {
                let Some(function) = Elementwise::by_name(name) else {
                    return Err(PromError::Unsupported(format!("the function {name}")));
                };
                let arguments: Result<Vec<Node>, PromError> =
                    arguments.iter().map(|expr| self.node(expr, grid, depth)).collect();
                Node::Call(function, arguments?)
            }
        })
    }

    fn over(
        &mut self,
        function: OverRange,
        arguments: &[&Expr],
        grid: Grid,
        depth: usize,
    ) -> Result<Node, PromError> {
        let ranged = |expr: &&&Expr| matches!(expr, Expr::MatrixSelector(_) | Expr::Subquery(_));
        let Some(range) = arguments.iter().find(ranged) else {
            return Err(PromError::Syntax("the function needs a range of values".to_owned()));
        };
        let parameter = arguments.iter().find(|expr| !ranged(expr));
        let parameter = parameter.map(|expr| self.node(expr, grid, depth)).transpose()?;
        let told = told(range);
        let (of, range_ns, lookup) = self.range(range, grid, function.needs(), depth)?;
        Ok(Node::Over(Box::new(Over { function, of, range_ns, lookup, parameter, told })))
    }
}

/// The instants of a subquery: multiples of its step after the beginning of the first range.
fn inner_grid(outer: Grid, range_ns: i64, step_ns: i64) -> Result<Grid, PromError> {
    let after_ns = outer.start_ns.saturating_sub(range_ns);
    let first_ns = after_ns.div_euclid(step_ns).saturating_add(1).saturating_mul(step_ns);
    // A range shorter than the step may hold no instant at all: then one before everything.
    let grid = Grid::between(first_ns, outer.end_ns(), step_ns).unwrap_or(Grid::at(first_ns));
    if grid.count > SUBQUERY_STEPS_MAX {
        let text =
            format!("a subquery may have {SUBQUERY_STEPS_MAX} steps; take a larger step or a shorter range");
        return Err(PromError::TooMuch(text));
    }
    Ok(grid)
}

/// Labels that the equality matchers of a selector tell.
fn told(expr: &Expr) -> Vec<(Arc<str>, Arc<str>)> {
    let matchers = match expr {
        Expr::VectorSelector(selector) => &selector.matchers,
        Expr::MatrixSelector(matrix) => &matrix.vs.matchers,
        _ => return Vec::new(),
    };
    let names = |name: &str| matchers.matchers.iter().filter(|one| one.name == name).count();
    let equal = matchers.matchers.iter().filter(|one| {
        matches!(one.op, promql_parser::label::MatchOp::Equal)
            && one.name != crate::labels::NAME
            && names(&one.name) == 1
    });
    equal.map(|one| (one.name.as_str().into(), one.value.as_str().into())).collect()
}

fn unwrapped(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(paren) => unwrapped(&paren.expr),
        _ => expr,
    }
}

/// The name of a label that a query makes. As in Prometheus, another one is found when the query is evaluated.
pub(crate) fn label(name: &str) -> Result<Arc<str>, PromError> {
    let mut letters = name.chars();
    let begins = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if begins && letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(name.into());
    }
    Err(PromError::Execution(format!("invalid label name {name:?}")))
}

fn nanoseconds(duration: Duration) -> Result<i64, PromError> {
    let ns = i64::try_from(duration.as_nanos());
    ns.map_err(|_| PromError::TooMuch("a duration may not exceed 292 years".to_owned()))
}

/// A range or a step: 0 is none.
fn span(duration: Duration) -> Result<i64, PromError> {
    match nanoseconds(duration)? {
        0 => Err(PromError::Syntax("duration must be greater than 0".to_owned())),
        ns => Ok(ns),
    }
}

fn label_names(labels: &Labels) -> Vec<Arc<str>> {
    labels.labels.iter().map(|name| name.as_str().into()).collect()
}

fn grouping(modifier: &LabelModifier) -> Grouping {
    match modifier {
        LabelModifier::Include(labels) => Grouping::By(label_names(labels)),
        LabelModifier::Exclude(labels) => Grouping::Without(label_names(labels)),
    }
}

fn matching(modifier: Option<&BinModifier>) -> Result<(Grouping, ManySide), PromError> {
    use parser::VectorMatchCardinality as Card;
    let Some(modifier) = modifier else { return Ok((Grouping::Without(Vec::new()), ManySide::Neither)) };
    if modifier.fill_values.lhs.is_some() || modifier.fill_values.rhs.is_some() {
        return Err(PromError::Unsupported("fill".to_owned()));
    }
    let many = match &modifier.card {
        Card::OneToOne | Card::ManyToMany => ManySide::Neither,
        Card::ManyToOne(labels) => ManySide::Left(label_names(labels)),
        Card::OneToMany(labels) => ManySide::Right(label_names(labels)),
    };
    let on = modifier.matching.as_ref().map_or(Grouping::Without(Vec::new()), grouping);
    Ok((on, many))
}

fn binary_op(op: TokenType) -> Result<BinaryOp, PromError> {
    Ok(match op.id() {
        token::T_ADD => BinaryOp::Add,
        token::T_SUB => BinaryOp::Sub,
        token::T_MUL => BinaryOp::Mul,
        token::T_DIV => BinaryOp::Div,
        token::T_MOD => BinaryOp::Mod,
        token::T_POW => BinaryOp::Pow,
        token::T_ATAN2 => BinaryOp::Atan2,
        token::T_EQLC => BinaryOp::Equal,
        token::T_NEQ => BinaryOp::NotEqual,
        token::T_LSS => BinaryOp::Less,
        token::T_LTE => BinaryOp::LessOrEqual,
        token::T_GTR => BinaryOp::Greater,
        token::T_GTE => BinaryOp::GreaterOrEqual,
        token::T_LAND => BinaryOp::And,
        token::T_LOR => BinaryOp::Or,
        token::T_LUNLESS => BinaryOp::Unless,
        _ => return Err(PromError::Unsupported(format!("the operator {op}"))),
    })
}

fn aggregate_op(op: TokenType) -> Result<AggregateOp, PromError> {
    Ok(match op.id() {
        token::T_SUM => AggregateOp::Sum,
        token::T_AVG => AggregateOp::Avg,
        token::T_MIN => AggregateOp::Min,
        token::T_MAX => AggregateOp::Max,
        token::T_COUNT => AggregateOp::Count,
        token::T_GROUP => AggregateOp::Group,
        token::T_STDDEV => AggregateOp::Stddev,
        token::T_STDVAR => AggregateOp::Stdvar,
        token::T_TOPK => AggregateOp::Topk,
        token::T_BOTTOMK => AggregateOp::Bottomk,
        token::T_QUANTILE => AggregateOp::Quantile,
        token::T_COUNT_VALUES => AggregateOp::CountValues,
        _ => return Err(PromError::Unsupported(format!("the aggregation {op}"))),
    })
}
