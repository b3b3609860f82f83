//! Products of half-precision matrices on matrix units, for CUDA cards since compute capability 8.0: f32 sums, factors in either layout, and
//! sums over many numbers split among cubes.
//!
//! A cube computes a tile of the product, each of its planes a part of it. While it multiplies one slice of the factors in shared memory, it
//! reads the next one from the card's memory into registers.

use super::super::fragments::{LANES, has_fragments, multiply};
use super::super::launch::{element, empty, wide_grid, wide_stride};
use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::cmma::{MatrixIdent, MmaDefinition};
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

/// Numbers of a sum in a slice of the factors.
const DEPTH: usize = 32;
/// Numbers that are read at once: 16 bytes.
const WIDTH: usize = 8;
/// Least numbers of a sum that a cube of its own pays for.
const LEAST_SHARE: usize = 8 * DEPTH;

/// Sizes of a cube's tile and of its planes' parts, which are multiples of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tile {
    rows: usize,
    columns: usize,
    /// Rows and columns of a plane's part.
    part: [usize; 2],
}

/// Sizes in numbers, and distances in vectors of 16 bytes; those of the product in numbers.
#[derive(CubeLaunch, CubeType, Clone, Copy)]
struct Sizes {
    rows: usize,
    columns: usize,
    depth: usize,
    /// Numbers of each sum that a cube adds, a multiple of [`DEPTH`].
    share: usize,
    /// Distances of rows, or of columns where those are contiguous.
    lhs_pitch: usize,
    rhs_pitch: usize,
    y_pitch: usize,
    base_pitch: usize,
    /// Distances of matrices.
    lhs_batch: usize,
    rhs_batch: usize,
    y_batch: usize,
}

/// A factor or product as a batch of matrices.
struct Matrices {
    batch: usize,
    rows: usize,
    columns: usize,
    /// Whether neighbours in a row are neighbours in memory, not those in a column.
    by_rows: bool,
    /// Distance of rows, or of columns, in numbers.
    pitch: usize,
    /// Distance of matrices, in numbers.
    distance: usize,
}

impl Matrices {
    /// `None` if the matrices are not at equal distances, or have neighbours in neither direction.
    fn of(x: &CubeTensor) -> Option<Self> {
        let (shape, strides) = (x.shape(), x.meta.strides());
        let last = shape.num_dims().checked_sub(1)?;
        let [rows, columns] = [shape[last.checked_sub(1)?], shape[last]];
        let (mut batch, mut distance) = (1, 0);
        for axis in (0..last - 1).rev().filter(|axis| shape[*axis] > 1) {
            if batch == 1 {
                distance = strides[axis];
            } else if strides[axis] != batch * distance {
                return None;
            }
            batch *= shape[axis];
        }
        let by_rows = strides[last] == 1 || columns == 1;
        if !by_rows && strides[last - 1] != 1 {
            return None;
        }
        let pitch = if by_rows { strides[last - 1] } else { strides[last] };
        Some(Self { batch, rows, columns, by_rows, pitch, distance })
    }

    /// Length of what is contiguous: rows or columns.
    fn along(&self) -> usize {
        if self.by_rows { self.columns } else { self.rows }
    }

    /// Whether the last vector of a row or column reaches beyond it.
    fn is_ragged(&self) -> bool {
        !self.along().is_multiple_of(WIDTH)
    }

    /// Whether vectors of 16 bytes can be read along rows or columns.
    fn is_aligned(&self, x: &CubeTensor) -> bool {
        let offset = x.handle.offset_start.unwrap_or(0);
        // The last vector of a row reaches into the space between rows, if there is any.
        let fits = self.pitch >= self.along().next_multiple_of(WIDTH);
        fits && [self.pitch, self.distance].iter().all(|d| d.is_multiple_of(WIDTH)) && offset.is_multiple_of(16)
    }
}

/// Numbers that are added to a product.
#[derive(Clone, Copy, Default)]
pub(super) struct Added<'a> {
    /// One for each column.
    pub bias: Option<&'a CubeTensor>,
    /// Numbers in f32 and in the product's shape.
    pub base: Option<&'a CubeTensor>,
}

/// Writes `lhs · rhs`, plus what is added, to `y`; false if the factors are not of a type and layout that the kernels take.
pub(super) fn launch_tiles(lhs: &CubeTensor, rhs: &CubeTensor, Added { bias, base }: Added, y: &CubeTensor) -> bool {
    let client = lhs.client.clone();
    if lhs.dtype != rhs.dtype || !has_fragments(client.properties(), lhs.dtype) {
        return false;
    }
    let [Some(left), Some(right), Some(product)] = [lhs, rhs, y].map(Matrices::of) else { return false };
    if !left.is_aligned(lhs) || !right.is_aligned(rhs) || !product.by_rows || left.batch != right.batch {
        return false;
    }
    let tile = Tile::of(left.rows, right.columns);
    let tiles = left.rows.div_ceil(tile.rows) * right.columns.div_ceil(tile.columns) * left.batch;
    let multiprocessors = client.properties().hardware.num_streaming_multiprocessors.map_or(32, |n| n as usize);
    let shares = shares(left.columns, tiles, multiprocessors);
    let share = left.columns.div_ceil(shares).next_multiple_of(DEPTH);
    let shares = left.columns.div_ceil(share);
    let base_pitch = match base.map(Matrices::of) {
        None => 0,
        Some(Some(base)) if base.by_rows && base.batch == 1 && shares == 1 => base.pitch,
        Some(_) => return false,
    };
    // Shares of sums are added by another kernel, always in the same order.
    let partial = (shares > 1).then(|| {
        let shape = [shares, left.batch, left.rows, right.columns].into();
        empty_device_contiguous_dtype(client.clone(), y.device.clone(), shape, DType::F32)
    });
    let target = partial.as_ref().unwrap_or(y);
    let (y_pitch, y_batch) = match &partial {
        Some(_) => (right.columns, left.rows * right.columns),
        None => (product.pitch, product.distance),
    };
    let starts_at_pair = |x: &CubeTensor| x.handle.offset_start.unwrap_or(0).is_multiple_of(8);
    let pairs = [right.columns, y_pitch, y_batch, base_pitch].iter().all(|n| n.is_multiple_of(2))
        && starts_at_pair(target)
        && base.is_none_or(starts_at_pair);
    let sizes = SizesLaunch::new(
        left.rows,
        right.columns,
        left.columns,
        share,
        left.pitch / WIDTH,
        right.pitch / WIDTH,
        y_pitch,
        base_pitch,
        left.distance / WIDTH,
        right.distance / WIDTH,
        y_batch,
    );
    let count = left.rows.div_ceil(tile.rows) * right.columns.div_ceil(tile.columns);
    let cubes = CubeCount::Static(count as u32, shares as u32, left.batch as u32);
    // Without a bias or base any tensor will do, because it is not read.
    let base = base.unwrap_or(target).clone();
    let added = bias.cloned().map_or_else(|| empty(lhs, [1]), into_contiguous);
    let (of_product, of_base) = (bias.is_some() && partial.is_none(), base_pitch > 0);
    let [a, b, c] = [lhs, rhs, target].map(|x| x.clone().into_tensor_arg());
    let units = CubeDim::new_2d(LANES as u32, tile.planes() as u32);
    let (low, out) = (element(lhs.dtype), element(target.dtype));
    let width = if pairs { 2 } else { 1 };
    product_of_tiles::launch(
        &client,
        cubes,
        units,
        WIDTH,
        2,
        width,
        a,
        b,
        added.clone().into_tensor_arg(),
        base.into_tensor_arg(),
        c,
        sizes,
        tile,
        [left.by_rows, right.by_rows],
        [left.is_ragged(), right.is_ragged()],
        [of_product, of_base],
        low,
        out,
    );
    if let Some(partial) = partial {
        let columns = right.columns;
        let numbers = left.batch * left.rows * columns;
        let (cubes, units) = wide_grid(&client, numbers);
        let [from, to] = [&partial, y].map(|x| x.clone().into_tensor_arg());
        let sizes = [shares, left.rows, columns, product.pitch, product.distance];
        let [shares, rows, columns, pitch, distance] = sizes;
        sum_of_shares::launch(
            &client,
            cubes,
            units,
            from,
            added.into_tensor_arg(),
            to,
            numbers,
            shares,
            rows,
            columns,
            pitch,
            distance,
            bias.is_some(),
            element(y.dtype),
        );
    }
    true
}

impl Tile {
    /// The tile for a product of so many rows and columns.
    fn of(rows: usize, columns: usize) -> Self {
        let tile = |rows, columns, part| Self { rows, columns, part };
        match (rows, columns) {
            (_, ..=32) => tile(128, 32, [16, 32]),
            (..=32, _) => tile(32, 128, [32, 16]),
            (_, ..=64) => tile(128, 64, [32, 32]),
            (..=64, _) => tile(64, 128, [32, 32]),
            _ => tile(128, 128, [64, 32]),
        }
    }

    /// Planes side by side.
    fn across(&self) -> usize {
        self.columns / self.part[1]
    }

    fn planes(&self) -> usize {
        self.rows / self.part[0] * self.across()
    }

    /// Units of a cube.
    fn units(&self) -> usize {
        LANES * self.planes()
    }
}

/// Among how many cubes each sum is split, so that there are two cubes for every multiprocessor.
fn shares(depth: usize, tiles: usize, multiprocessors: usize) -> usize {
    (2 * multiprocessors / tiles.max(1)).clamp(1, (depth / LEAST_SHARE).max(1))
}

/// Vectors of a line of a tile in shared memory: one more than there are, so that eight lines lie in different banks.
fn pitch(lines_along_depth: bool, side: usize) -> usize {
    if lines_along_depth { DEPTH / WIDTH + 1 } else { side / WIDTH + 1 }
}

/// Vectors of a tile of one factor in shared memory.
fn area(along_depth: bool, side: usize) -> usize {
    if along_depth { side * pitch(true, side) } else { DEPTH * pitch(false, side) }
}

/// Vectors of a factor's slice that a unit reads; the last ones may be beyond it.
fn reads(side: usize, tile: Tile) -> usize {
    (side * DEPTH / WIDTH).div_ceil(tile.units())
}

/// Vectors of a line of a slice.
fn line(along_depth: bool, side: usize) -> usize {
    if along_depth { DEPTH / WIDTH } else { side / WIDTH }
}

/// Where a cube reads a factor.
#[derive(CubeType, Clone, Copy)]
struct Source {
    /// First vector of the matrix.
    offset: usize,
    /// Rows of the left factor, or columns of the right one, from `first`; there are `count` in all.
    first: usize,
    count: usize,
    /// Numbers of the sums from `start` to `end`.
    start: usize,
    end: usize,
    pitch: usize,
    #[cube(comptime)]
    along_depth: bool,
    /// Rows or columns of a tile.
    #[cube(comptime)]
    side: usize,
    #[cube(comptime)]
    ragged: bool,
    #[cube(comptime)]
    tile: Tile,
}

#[cube(launch)]
fn product_of_tiles<T: Numeric, O: Numeric, W: Size, P: Size, Q: Size>(
    lhs: &Tensor<Vector<T, W>>,
    rhs: &Tensor<Vector<T, W>>,
    bias: &Tensor<f32>,
    base: &Tensor<Vector<f32, Q>>,
    y: &mut Tensor<Vector<O, Q>>,
    sizes: Sizes,
    #[comptime] tile: Tile,
    #[comptime] by_rows: [bool; 2],
    #[comptime] ragged: [bool; 2],
    #[comptime] added: [bool; 2],
    #[define(T)] _low: ElemType,
    #[define(O)] _out: ElemType,
) {
    let across = sizes.columns.div_ceil(comptime!(tile.columns));
    let first_row = CUBE_POS_X as usize / across * comptime!(tile.rows);
    let first_column = CUBE_POS_X as usize % across * comptime!(tile.columns);
    let start = CUBE_POS_Y as usize * sizes.share;
    let end = min(start + sizes.share, sizes.depth);
    let of_left = Source {
        offset: CUBE_POS_Z as usize * sizes.lhs_batch,
        first: first_row,
        count: sizes.rows,
        start,
        end,
        pitch: sizes.lhs_pitch,
        along_depth: comptime!(by_rows[0]),
        side: comptime!(tile.rows),
        ragged: comptime!(ragged[0]),
        tile,
    };
    let of_right = Source {
        offset: CUBE_POS_Z as usize * sizes.rhs_batch,
        first: first_column,
        count: sizes.columns,
        start,
        end,
        pitch: sizes.rhs_pitch,
        along_depth: comptime!(!by_rows[1]),
        side: comptime!(tile.columns),
        ragged: comptime!(ragged[1]),
        tile,
    };
    let left_area = comptime!(area(by_rows[0], tile.rows));
    let right_area = comptime!(area(!by_rows[1], tile.columns));
    let mut left = Shared::<[Vector<T, W>]>::new_slice(comptime!(2 * left_area));
    let mut right = Shared::<[Vector<T, W>]>::new_slice(comptime!(2 * right_area));
    let mut next_left = Array::<Vector<T, W>>::new(comptime!(reads(tile.rows, tile)));
    let mut next_right = Array::<Vector<T, W>>::new(comptime!(reads(tile.columns, tile)));
    let [part_rows, part_columns] = comptime!(tile.part);
    let (tall, wide) = (comptime!(part_rows / 16), comptime!(part_columns / 16));
    let row = UNIT_POS_Y as usize / comptime!(tile.across()) * part_rows;
    let column = UNIT_POS_Y as usize % comptime!(tile.across()) * part_columns;
    let mut sums = Array::<Vector<f32, P>>::new(comptime!(4 * tall * wide));
    #[unroll]
    for at in 0..comptime!(4 * tall * wide) {
        sums[at] = Vector::new(0.0f32);
    }

    let (left_places, left_limits) = places(&of_left);
    let (right_places, right_limits) = places(&of_right);
    read::<T, W>(&mut next_left, lhs, &left_places, &left_limits, 0usize, &of_left);
    read::<T, W>(&mut next_right, rhs, &right_places, &right_limits, 0usize, &of_right);
    keep::<T, W>(&next_left, &mut left, 0usize, 0usize, &of_left);
    keep::<T, W>(&next_right, &mut right, 0usize, 0usize, &of_right);
    sync_cube();
    let steps = (end - start).div_ceil(DEPTH);
    for step in 0..steps {
        let side = step % 2;
        // Beyond the last slice there are zeros.
        read::<T, W>(&mut next_left, lhs, &left_places, &left_limits, step + 1, &of_left);
        read::<T, W>(&mut next_right, rhs, &right_places, &right_limits, step + 1, &of_right);
        #[unroll]
        for part in 0..comptime!(DEPTH / 16) {
            let mut factors = Array::<Vector<T, P>>::new(comptime!(4 * tall));
            #[unroll]
            for i in 0..tall {
                let of_row = row + comptime!(16 * i);
                let found = left_fragment::<T, W, P>(
                    &left,
                    side * left_area,
                    of_row,
                    comptime!(16 * part),
                    by_rows[0],
                    tile.rows,
                );
                #[unroll]
                for e in 0..4usize {
                    factors[comptime!(4 * i + e)] = found[e];
                }
            }
            #[unroll]
            for j in 0..wide {
                let of_column = column + comptime!(16 * j);
                let found = right_fragment::<T, W, P>(
                    &right,
                    side * right_area,
                    of_column,
                    comptime!(16 * part),
                    comptime!(!by_rows[1]),
                    tile.columns,
                );
                #[unroll]
                for i in 0..tall {
                    #[unroll]
                    for half in 0..2usize {
                        let at = comptime!(4 * (i * wide + j) + 2 * half);
                        multiply::<T, P>(&mut sums, at, &factors, comptime!(4 * i), &found, comptime!(2 * half));
                    }
                }
            }
        }
        let other = (step + 1) % 2;
        keep::<T, W>(&next_left, &mut left, other * left_area, step + 1, &of_left);
        keep::<T, W>(&next_right, &mut right, other * right_area, step + 1, &of_right);
        sync_cube();
    }

    let of_y = (CUBE_POS_Y as usize * CUBE_COUNT_Z as usize + CUBE_POS_Z as usize) * sizes.y_batch;
    #[unroll]
    for i in 0..tall {
        #[unroll]
        for j in 0..wide {
            #[unroll]
            for e in 0..4usize {
                let of_row = first_row + row + comptime!(16 * i + e % 2 * 8) + UNIT_POS_X as usize / 4;
                let of_column = first_column + column + comptime!(16 * j + e / 2 * 8) + UNIT_POS_X as usize % 4 * 2;
                let mut pair = sums[comptime!(4 * (i * wide + j) + e)];
                if comptime!(added[0]) {
                    #[unroll]
                    for n in 0..2usize {
                        if of_column + n < sizes.columns {
                            pair.insert(n, pair.extract(n) + bias[of_column + n]);
                        }
                    }
                }
                if comptime!(added[1]) {
                    pair = plus::<P, Q>(pair, base, of_row, of_column, &sizes);
                }
                write::<O, P, Q>(y, pair, of_y + of_row * sizes.y_pitch, of_row, of_column, &sizes);
            }
        }
    }
}

/// Returns where this unit's vectors of the first slice lie, and how many numbers of the sums there are from there: none beyond the last row.
#[cube]
fn places(source: &Source) -> (Array<usize>, Array<usize>) {
    let (side, tile, along_depth) = (comptime!(source.side), comptime!(source.tile), comptime!(source.along_depth));
    let line = comptime!(line(along_depth, side));
    let mut places = Array::<usize>::new(comptime!(reads(side, tile)));
    let mut limits = Array::<usize>::new(comptime!(reads(side, tile)));
    #[unroll]
    for i in 0..comptime!(reads(side, tile)) {
        let at = UNIT_POS as usize + comptime!(i * tile.units());
        let (of_line, of_vector) = (at / line, at % line * WIDTH);
        let (mut row, mut depth) = (source.first + of_vector, source.start + of_line);
        let mut place = source.offset + depth * source.pitch + row / WIDTH;
        if along_depth {
            row = source.first + of_line;
            depth = source.start + of_vector;
            place = source.offset + row * source.pitch + depth / WIDTH;
        }
        let mut limit = 0usize;
        if at < comptime!(side * DEPTH / WIDTH) && row < source.count && depth < source.end {
            limit = source.end - depth;
        }
        places[i] = place;
        limits[i] = limit;
    }
    (places, limits)
}

/// Reads this unit's vectors of a slice of a factor. Nothing here needs what is read, so that the next reads and products do not wait for it.
#[cube]
fn read<T: Numeric, W: Size>(
    vectors: &mut Array<Vector<T, W>>,
    factor: &Tensor<Vector<T, W>>,
    places: &Array<usize>,
    limits: &Array<usize>,
    slice: usize,
    source: &Source,
) {
    let mut distance = slice * DEPTH * source.pitch;
    if comptime!(source.along_depth) {
        distance = slice * comptime!(DEPTH / WIDTH);
    }
    #[unroll]
    for i in 0..comptime!(reads(source.side, source.tile)) {
        vectors[i] = Vector::new(T::from_int(0));
        if slice * DEPTH < limits[i] {
            vectors[i] = factor[places[i] + distance];
        }
    }
}

/// Writes this unit's vectors of a slice to shared memory, from `offset`.
#[cube]
fn keep<T: Numeric, W: Size>(
    vectors: &Array<Vector<T, W>>,
    memory: &mut Shared<[Vector<T, W>]>,
    offset: usize,
    slice: usize,
    source: &Source,
) {
    let (side, tile, along_depth) = (comptime!(source.side), comptime!(source.tile), comptime!(source.along_depth));
    let line = comptime!(line(along_depth, side));
    #[unroll]
    for i in 0..comptime!(reads(side, tile)) {
        let at = UNIT_POS as usize + comptime!(i * tile.units());
        let mut vector = vectors[i];
        if comptime!(source.ragged) {
            let mut first = source.first + at % line * WIDTH;
            let mut end = source.count;
            if along_depth {
                first = source.start + slice * DEPTH + at % line * WIDTH;
                end = source.end;
            }
            #[unroll]
            for e in 0..WIDTH {
                if first + e >= end {
                    vector.insert(e, T::from_int(0));
                }
            }
        }
        if comptime!((side * DEPTH / WIDTH).is_multiple_of(tile.units())) {
            memory[offset + at / line * comptime!(pitch(along_depth, side)) + at % line] = vector;
        } else if at < comptime!(side * DEPTH / WIDTH) {
            memory[offset + at / line * comptime!(pitch(along_depth, side)) + at % line] = vector;
        }
    }
}

/// Returns 16 rows from `row` and 16 numbers of the sums from `depth` as a left factor.
#[cube]
fn left_fragment<T: Numeric, W: Size, P: Size>(
    memory: &Shared<[Vector<T, W>]>,
    offset: usize,
    row: usize,
    #[comptime] depth: usize,
    #[comptime] along_depth: bool,
    #[comptime] side: usize,
) -> Array<Vector<T, P>> {
    let mma = MmaDefinition::<T, T, f32>::new(16usize, 8usize, 16usize);
    let lane = UNIT_POS_X as usize;
    let lines = comptime!(pitch(along_depth, side));
    let mut at = offset + (depth + lane % 8 + lane / 16 * 8) * lines + row / WIDTH + lane / 8 % 2;
    if along_depth {
        at = offset + (row + lane % 16) * lines + comptime!(depth / WIDTH) + lane / 16;
    }
    mma.load_matrix::<Vector<T, W>, P>(&memory[at..at + 1], MatrixIdent::A, 4usize, comptime!(!along_depth))
}

/// Returns 16 columns from `column` and 16 numbers of the sums from `depth` as two right factors of 8 columns.
#[cube]
fn right_fragment<T: Numeric, W: Size, P: Size>(
    memory: &Shared<[Vector<T, W>]>,
    offset: usize,
    column: usize,
    #[comptime] depth: usize,
    #[comptime] along_depth: bool,
    #[comptime] side: usize,
) -> Array<Vector<T, P>> {
    let mma = MmaDefinition::<T, T, f32>::new(16usize, 8usize, 16usize);
    let lane = UNIT_POS_X as usize;
    let lines = comptime!(pitch(along_depth, side));
    let mut at = offset + (depth + lane % 16) * lines + column / WIDTH + lane / 16;
    if along_depth {
        at = offset + (column + lane % 8 + lane / 16 * 8) * lines + comptime!(depth / WIDTH) + lane / 8 % 2;
    }
    mma.load_matrix::<Vector<T, W>, P>(&memory[at..at + 1], MatrixIdent::B, 4usize, comptime!(!along_depth))
}

/// Writes two neighbours of a row, which begins at `offset`.
#[cube]
fn write<O: Numeric, P: Size, Q: Size>(
    y: &mut Tensor<Vector<O, Q>>,
    pair: Vector<f32, P>,
    offset: usize,
    row: usize,
    column: usize,
    sizes: &Sizes,
) {
    let width = y.vector_size();
    if row < sizes.rows {
        if comptime!(width == 2) {
            if column < sizes.columns {
                y[(offset + column) / 2] = Vector::cast_from(pair);
            }
        } else {
            #[unroll]
            for e in 0..2usize {
                if column + e < sizes.columns {
                    y[offset + column + e] = Vector::cast_from(pair.extract(e));
                }
            }
        }
    }
}

/// Adds the base to two neighbours of a row.
#[cube]
fn plus<P: Size, Q: Size>(
    pair: Vector<f32, P>,
    base: &Tensor<Vector<f32, Q>>,
    row: usize,
    column: usize,
    sizes: &Sizes,
) -> Vector<f32, P> {
    let width = base.vector_size();
    let mut sums = pair;
    if row < sizes.rows {
        let at = row * sizes.base_pitch + column;
        #[unroll]
        for n in 0..2usize {
            if column + n < sizes.columns {
                if comptime!(width == 2) {
                    sums.insert(n, sums.extract(n) + base[at / 2].extract(n));
                } else {
                    sums.insert(n, sums.extract(n) + base[at + n].extract(0usize));
                }
            }
        }
    }
    sums
}

/// Adds shares, `[shares, batch, rows, columns]`, in order.
#[cube(launch)]
fn sum_of_shares<O: Numeric>(
    from: &Tensor<f32>,
    bias: &Tensor<f32>,
    to: &mut Tensor<O>,
    numbers: usize,
    shares: usize,
    rows: usize,
    columns: usize,
    pitch: usize,
    distance: usize,
    #[comptime] biased: bool,
    #[define(O)] _out: ElemType,
) {
    let mut at = ABSOLUTE_POS;
    while at < numbers {
        let mut sum = from[at];
        for share in 1..shares {
            sum += from[share * numbers + at];
        }
        let (row, column) = (at / columns, at % columns);
        if biased {
            sum += bias[column];
        }
        to[row / rows * distance + row % rows * pitch + column] = O::cast_from(sum);
        at += wide_stride();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_cover_a_tile() {
        for tile in [1, 32, 33, 64, 65, 500].iter().flat_map(|m| [1, 32, 64, 500].map(|n| Tile::of(*m, n))) {
            assert_eq!(tile.rows * tile.columns, tile.planes() * tile.part[0] * tile.part[1], "{tile:?}");
        }
    }

    #[test]
    fn long_sums_are_split_where_there_are_few_tiles() {
        // A weight's gradient, an activation, and a short sum.
        assert_eq!([shares(24_000, 36, 132), shares(768, 1128, 132), shares(96, 1, 132)], [7, 1, 1]);
    }
}
