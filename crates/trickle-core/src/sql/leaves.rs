//! Rendering of leaves: tables, changes, stored results and constant rows.

use super::ast::{FromItem, Query, Scalar, Select, SelectItem, SetExpr};
use super::expr::scalar;
use super::fragment::{Block, Closed, Weight};
use super::render::RenderContext;
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::NodeId;
use crate::ident::{Ident, Qualified};
use crate::rel::Table;
use crate::types::Type;
use std::sync::Arc;

impl RenderContext<'_> {
    /// Reads the current rows of a table.
    pub(crate) fn current(&mut self, table: &Table) -> Block {
        let relation = self.sources().table(table.def());
        let alias = self.alias_like(&Ident::from(&table.def().name));
        let mut block = Block::reading(
            FromItem::relation(relation.name, alias.clone()),
            &alias,
            &pick(&relation.columns, table.columns()),
        );
        block.filter = self.sources().conditions(self.node(), &alias);
        block
    }

    /// Reads the change of a table.
    pub(crate) fn change(&mut self, table: &Table) -> Result<Block> {
        let changes = self.sources().changes(table.def())?;
        let wanted: Arc<str> = format!("delta_{}", table.def().name).into();
        let alias = self.alias_like(&Ident::from(&wanted));
        let item = FromItem::relation(changes.relation.name, alias.clone());
        let columns = pick(&changes.relation.columns, table.columns());
        let mut block = Block::reading(item, &alias, &columns);
        block.filter = changes.window.conditions(&alias);
        let weight = Scalar::column(&alias, &changes.weight);
        block.weight = Weight::of(match changes.weight_type {
            Type::Int8 => weight.clone(),
            _ => weight.clone().cast(Type::Int8),
        });
        let Some(counted) = changes.counted else { return Ok(block) };
        // The planner expects that an equality of two expressions over the same row holds for one row in 200.
        // With such an equality, the planner's estimate for the buffer is low, whatever statistics the buffer
        // has.
        block.filter.push(weight.clone().equals(weight.op("*", Scalar::int4(1))));
        let Closed { set: read, names, .. } = block.close(self.output(), true);
        let rows = self.expecting(read, counted);
        let name = self.cte(&wanted, Query::new(rows), None);
        let alias = self.alias_like(&Ident::from(&wanted));
        let item = FromItem::relation(Qualified::bare(name), alias.clone());
        let mut block = Block::reading(item, &alias, &names.columns);
        block.weight = Weight::of(Scalar::column(&alias, &names.weight));
        Ok(block)
    }

    /// Adds a UNION ALL arm without rows to weighted rows for which the planner's estimate is close to 0. For
    /// this arm, the planner expects as many rows as were counted. It expects n rows from
    /// `generate_series(1, n)`, and assumes that a condition without columns is true. The values of the arm
    /// are NULL, but the planner cannot know this. The planner therefore keeps the arm, whatever conditions
    /// the reading operator adds.
    fn expecting(&mut self, read: SetExpr, counted: Scalar) -> SetExpr {
        let (floor, n) = (self.alias("floor"), Ident::fixed("n"));
        let types = self.schema().columns().iter().map(|c| c.ty.clone()).chain([Type::Int8]);
        let unknown = |ty| Scalar::Case {
            whens: vec![(Scalar::column(&floor, &n).is_null(), Scalar::null(ty))],
            otherwise: None,
        };
        let never =
            Select { items: vec![SelectItem { expr: Scalar::bool(false), name: None }], ..Select::default() };
        let never = Query::new(SetExpr::Select(Box::new(never)));
        let floor = Select {
            items: types.map(|ty| SelectItem { expr: unknown(ty), name: None }).collect(),
            from: vec![FromItem::call_naming(
                Scalar::call("generate_series", vec![Scalar::int8(1), counted]),
                floor.clone(),
                vec![n],
            )],
            filter: vec![Scalar::Subquery(Box::new(never))],
            ..Select::default()
        };
        SetExpr::UnionAll(vec![read, SetExpr::Select(Box::new(floor))])
    }

    /// Reads the stored result of a node.
    pub(crate) fn stored(&mut self, of: NodeId) -> Result<Block> {
        let stored = self.sources().state(of)?;
        let alias = self.alias_like(&stored.relation.name.name);
        let item = FromItem::relation(stored.relation.name, alias.clone());
        let mut block = Block::reading(item, &alias, &stored.relation.columns);
        if let Some(weight) = stored.weight {
            block.weight = Weight::of(Scalar::column(&alias, &weight).cast(Type::Int8));
        }
        Ok(block)
    }

    /// Makes a block of constant rows.
    pub(crate) fn constant(&mut self, rows: &[Vec<Expr>]) -> Block {
        let mut block =
            Block { from: Vec::new(), filter: Vec::new(), columns: Vec::new(), weight: Weight::one() };
        let row = |row: &Vec<Expr>| row.iter().map(|e| scalar(e, &[])).collect::<Vec<_>>();
        match rows {
            [] => {
                block.filter.push(Scalar::bool(false));
                let columns = self.schema().columns();
                block.columns = columns.iter().map(|c| Scalar::null(c.ty.clone())).collect();
                block
            }
            [only] => Block { columns: row(only), ..block },
            _ if self.schema().is_empty() => {
                let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
                self.repeated(Block { weight: Weight::of(Scalar::int8(count)), ..block })
            }
            _ => {
                let alias = self.alias("rows");
                let names = self.output().columns;
                let query = Box::new(Query::new(SetExpr::Values(rows.iter().map(row).collect())));
                let item = FromItem::Subquery {
                    query,
                    alias: alias.clone(),
                    columns: names.clone(),
                    lateral: false,
                };
                Block::reading(item, &alias, &names)
            }
        }
    }
}

fn pick(columns: &[Ident], positions: &[usize]) -> Vec<Ident> {
    positions.iter().filter_map(|p| columns.get(*p)).cloned().collect()
}

/// Returns the select list of `SELECT 1`, for a subquery that is only tested for the existence of rows.
pub(super) fn one() -> Vec<SelectItem> {
    vec![SelectItem { expr: Scalar::int4(1), name: None }]
}
