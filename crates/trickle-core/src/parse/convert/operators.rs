//! Converts operators.

use super::Converter;
use crate::error::Result;
use crate::parse::forms::operator_of_any;
use crate::syntax::{BinaryOperator, Node, Operator, UnaryOperator};
use sqlparser::ast::{self, Expr};

impl Converter<'_> {
    pub(super) fn binary(
        &self,
        whole: &Expr,
        left: &Expr,
        op: &ast::BinaryOperator,
        right: &Expr,
    ) -> Result<Node> {
        use ast::BinaryOperator as Op;
        let op = match op {
            Op::And => BinaryOperator::And,
            Op::Or => BinaryOperator::Or,
            Op::Overlaps => BinaryOperator::Overlaps,
            Op::Xor | Op::Spaceship | Op::MyIntegerDivide => {
                return self.refused(format!("operator {op} is not PostgreSQL"), whole);
            }
            _ => BinaryOperator::Operator(operator(op)),
        };
        Ok(Node::Binary { left: self.boxed(left)?, op, right: self.boxed(right)? })
    }

    /// Converts `left op ANY (right)`. The parser crate does not read every operator before ANY. The name of
    /// such an operator arrives as the name of a call around the right operand.
    pub(super) fn quantified(
        &self,
        left: &Expr,
        op: &ast::BinaryOperator,
        right: &Expr,
        all: bool,
    ) -> Result<Node> {
        let (op, right) = match operator_of_any(right) {
            Some((name, asked)) => (Operator { schema: None, name: name.to_owned() }, asked),
            None => (operator(op), right),
        };
        Ok(Node::Quantified { left: self.boxed(left)?, op, right: self.boxed(right)?, all })
    }
}

pub(super) fn unary(op: &ast::UnaryOperator) -> UnaryOperator {
    match op {
        ast::UnaryOperator::Not => UnaryOperator::Not,
        ast::UnaryOperator::Plus => UnaryOperator::Plus,
        ast::UnaryOperator::Minus => UnaryOperator::Minus,
        other => UnaryOperator::Other(other.to_string()),
    }
}

fn operator(op: &ast::BinaryOperator) -> Operator {
    let ast::BinaryOperator::PGCustomBinaryOperator(parts) = op else {
        return Operator { schema: None, name: op.to_string() };
    };
    let schema = match parts.as_slice() {
        [schema, _] => {
            let quoted = schema.strip_prefix('"').and_then(|s| s.strip_suffix('"'));
            Some(quoted.map_or_else(|| schema.to_lowercase(), |s| s.replace("\"\"", "\"")))
        }
        _ => None,
    };
    Operator { schema, name: parts.last().cloned().unwrap_or_default() }
}
