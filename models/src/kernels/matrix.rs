//! The matrix product: a checked, safe door to the `gemm` crate.

use gemm::Parallelism;

/// A matrix of `f32` in somebody's slice.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    shape: Shape,
}

/// A matrix of `f32` to write into.
pub(crate) struct MatrixMut<'a> {
    values: &'a mut [f32],
    shape: Shape,
}

#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl Shape {
    /// Row after row, without gaps.
    fn packed(values: usize, rows: usize, columns: usize) -> Self {
        assert_eq!(Some(values), rows.checked_mul(columns), "a {rows}x{columns} matrix");
        assert!(values <= isize::MAX as usize);
        Self {
            rows,
            columns,
            row_stride: columns,
            column_stride: 1,
        }
    }

    fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }
}

impl<'a> Matrix<'a> {
    /// All of `values`, row after row.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self {
            values,
            shape: Shape::packed(values.len(), rows, columns),
        }
    }

    /// The same values with rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        Self {
            values: self.values,
            shape: self.shape.transposed(),
        }
    }

    /// `count` of its columns, from `first` on.
    pub(crate) fn columns(self, first: usize, count: usize) -> Self {
        let Self { values, mut shape } = self;
        assert!(count > 0 && first + count <= shape.columns);
        shape.columns = count;
        Self {
            values: &values[first * shape.column_stride..],
            shape,
        }
    }

    /// How many rows it has.
    pub(super) fn rows(&self) -> usize {
        self.shape.rows
    }

    /// How many columns it has.
    pub(super) fn column_count(&self) -> usize {
        self.shape.columns
    }

    /// The values of a row.
    pub(super) fn row(&self, row: usize) -> impl Iterator<Item = &'a f32> + use<'a> {
        let Shape {
            columns,
            row_stride,
            column_stride,
            ..
        } = self.shape;
        self.values[row * row_stride..]
            .iter()
            .step_by(column_stride)
            .take(columns)
    }
}

impl<'a> MatrixMut<'a> {
    /// All of `values`, row after row.
    pub(crate) fn new(values: &'a mut [f32], rows: usize, columns: usize) -> Self {
        let shape = Shape::packed(values.len(), rows, columns);
        Self { values, shape }
    }

    /// `count` of its columns, from `first` on; the others are left as they are.
    pub(crate) fn columns(self, first: usize, count: usize) -> Self {
        let Self { values, mut shape } = self;
        assert!(count > 0 && first + count <= shape.columns);
        shape.columns = count;
        Self {
            values: &mut values[first * shape.column_stride..],
            shape,
        }
    }

    /// Becomes `keep` times itself plus `scale` times `left` times `right`. With `keep` 0 it is not read.
    #[allow(unsafe_code)]
    pub(crate) fn product(self, keep: f32, scale: f32, left: Matrix<'_>, right: Matrix<'_>) {
        let (into, left_shape, right_shape) = (self.shape, left.shape, right.shape);
        assert_eq!(into.rows, left_shape.rows);
        assert_eq!(into.columns, right_shape.columns);
        assert_eq!(left_shape.columns, right_shape.rows);
        // SAFETY: each matrix covers exactly `rows * columns` values of its slice (`Shape::packed`; transposing only
        // exchanges the two, `columns` leaves out some), so every address `row * row_stride + column * column_stride`
        // lies inside the slice; the three sizes agree (asserted above); `self.values` is borrowed mutably, so it
        // overlaps neither operand.
        unsafe {
            gemm::gemm(
                into.rows,
                into.columns,
                left_shape.columns,
                self.values.as_mut_ptr(),
                into.column_stride as isize,
                into.row_stride as isize,
                keep != 0.0,
                left.values.as_ptr(),
                left_shape.column_stride as isize,
                left_shape.row_stride as isize,
                right.values.as_ptr(),
                right_shape.column_stride as isize,
                right_shape.row_stride as isize,
                keep,
                scale,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }
}

/// Writes `product`, the matrix product of `left` and `right`, where `left` has `inner` columns and `right` as many
/// rows; all matrices row after row. It is the product that large batches are made of, and the yardstick of what a
/// processor can do.
///
/// # Panics
/// When the lengths do not fit together.
pub fn matrix_product(left: &[f32], right: &[f32], inner: usize, product: &mut [f32]) {
    let (rows, columns) = (left.len() / inner, right.len() / inner);
    let (left, right) = (Matrix::new(left, rows, inner), Matrix::new(right, inner, columns));
    MatrixMut::new(product, rows, columns).product(0.0, 1.0, left, right);
}

/// Adds the columns' sums of a `rows x sums.len()` matrix to `sums`.
pub(crate) fn add_rows(sums: &mut [f32], matrix: &[f32]) {
    for row in matrix.chunks_exact(sums.len()) {
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_the_one_worked_by_hand() {
        let left = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let right = [1.0, 0.0, 2.0, 1.0, 0.0, 3.0];
        let mut into = [1.0; 4];
        MatrixMut::new(&mut into, 2, 2).product(2.0, 10.0, Matrix::new(&left, 2, 3), Matrix::new(&right, 3, 2));
        assert_eq!(into, [52.0, 112.0, 142.0, 232.0]);
        MatrixMut::new(&mut into, 2, 2).product(
            0.0,
            1.0,
            Matrix::new(&left, 3, 2).transposed(),
            Matrix::new(&right, 2, 3).transposed(),
        );
        assert_eq!(into, [11.0, 16.0, 14.0, 20.0]);
    }

    #[test]
    fn without_keeping_what_was_there_is_not_read() {
        let mut into = [f32::NAN];
        MatrixMut::new(&mut into, 1, 1).product(0.0, 1.0, Matrix::new(&[2.0], 1, 1), Matrix::new(&[3.0], 1, 1));
        assert_eq!(into, [6.0]);
    }

    #[test]
    #[should_panic]
    fn sizes_that_do_not_agree_are_refused() {
        MatrixMut::new(&mut [0.0; 4], 2, 2).product(
            0.0,
            1.0,
            Matrix::new(&[0.0; 6], 2, 3),
            Matrix::new(&[0.0; 4], 2, 2),
        );
    }
}
