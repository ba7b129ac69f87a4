// A pack that transposes: square tiles are transposed in registers, and edges element by element.
// -p structured-to-loops{vector-bytes=16}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<5x8xf32>):
    %1 = tile.pack %0 : tensor<5x8xf32> -> tensor<5x8xf32, #tile.layout<affine_map<(d0, d1) -> (d1, d0)>, #pg.ints[8, 5]>>
    %2 = tile.pack %1 : tensor<5x8xf32, #tile.layout<affine_map<(d0, d1) -> (d1, d0)>, #pg.ints[8, 5]>> -> tensor<5x8xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<5x8xf32>
  }
}
// -----
builtin.module {
  func.func private @move_40_f32_0(%0: index, %1: memref<40xf32>, %2: memref<40xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 8 : index
    %5 = arith.constant 4 : index
    %6 = arith.constant 16 : index
    %7 = arith.constant 24 : index
    %8 = arith.constant 5 : index
    %9 = arith.constant 10 : index
    %10 = arith.constant 15 : index
    scf.for %11 = %3 to %4 step %5 {
      %12 = vector.load %1[%11] : memref<40xf32>, vector<4xf32>
      %13 = arith.addi %11, %4 : index
      %14 = vector.load %1[%13] : memref<40xf32>, vector<4xf32>
      %15 = arith.addi %11, %6 : index
      %16 = vector.load %1[%15] : memref<40xf32>, vector<4xf32>
      %17 = arith.addi %11, %7 : index
      %18 = vector.load %1[%17] : memref<40xf32>, vector<4xf32>
      %19 = vector.shuffle %12, %14 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
      %20 = vector.shuffle %12, %14 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
      %21 = vector.shuffle %16, %18 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
      %22 = vector.shuffle %16, %18 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
      %23 = vector.shuffle %19, %21 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
      %24 = vector.shuffle %19, %21 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
      %25 = vector.shuffle %20, %22 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
      %26 = vector.shuffle %20, %22 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
      %27 = arith.muli %11, %8 : index
      vector.store %23, %2[%27] : memref<40xf32>, vector<4xf32>
      %28 = arith.addi %27, %8 : index
      vector.store %25, %2[%28] : memref<40xf32>, vector<4xf32>
      %29 = arith.addi %27, %9 : index
      vector.store %24, %2[%29] : memref<40xf32>, vector<4xf32>
      %30 = arith.addi %27, %10 : index
      vector.store %26, %2[%30] : memref<40xf32>, vector<4xf32>
    }
    %31 = arith.constant 1 : index
    %32 = arith.constant 32 : index
    scf.for %33 = %3 to %4 step %31 {
      %34 = arith.addi %33, %32 : index
      %35 = memref.load %1[%34] : memref<40xf32>
      %36 = arith.muli %33, %8 : index
      %37 = arith.addi %36, %5 : index
      memref.store %35, %2[%37] : memref<40xf32>
    }
    func.return
  }
  func.func private @move_40_f32_1(%0: index, %1: memref<40xf32>, %2: memref<40xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 8 : index
    %5 = arith.constant 4 : index
    %6 = arith.constant 5 : index
    %7 = arith.constant 10 : index
    %8 = arith.constant 15 : index
    %9 = arith.constant 16 : index
    %10 = arith.constant 24 : index
    scf.for %11 = %3 to %4 step %5 {
      %12 = arith.muli %11, %6 : index
      %13 = vector.load %1[%12] : memref<40xf32>, vector<4xf32>
      %14 = arith.addi %12, %6 : index
      %15 = vector.load %1[%14] : memref<40xf32>, vector<4xf32>
      %16 = arith.addi %12, %7 : index
      %17 = vector.load %1[%16] : memref<40xf32>, vector<4xf32>
      %18 = arith.addi %12, %8 : index
      %19 = vector.load %1[%18] : memref<40xf32>, vector<4xf32>
      %20 = vector.shuffle %13, %15 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
      %21 = vector.shuffle %13, %15 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
      %22 = vector.shuffle %17, %19 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
      %23 = vector.shuffle %17, %19 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
      %24 = vector.shuffle %20, %22 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
      %25 = vector.shuffle %20, %22 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
      %26 = vector.shuffle %21, %23 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
      %27 = vector.shuffle %21, %23 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
      vector.store %24, %2[%11] : memref<40xf32>, vector<4xf32>
      %28 = arith.addi %11, %4 : index
      vector.store %26, %2[%28] : memref<40xf32>, vector<4xf32>
      %29 = arith.addi %11, %9 : index
      vector.store %25, %2[%29] : memref<40xf32>, vector<4xf32>
      %30 = arith.addi %11, %10 : index
      vector.store %27, %2[%30] : memref<40xf32>, vector<4xf32>
    }
    %31 = arith.constant 1 : index
    %32 = arith.constant 32 : index
    scf.for %33 = %3 to %4 step %31 {
      %34 = arith.muli %33, %6 : index
      %35 = arith.addi %34, %5 : index
      %36 = memref.load %1[%35] : memref<40xf32>
      %37 = arith.addi %33, %32 : index
      memref.store %36, %2[%37] : memref<40xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<5x8xf32>):
    %1 = tile.launch @move_40_f32_0 chunks 1 : i64 inplace [](%0) : (tensor<5x8xf32>) -> tensor<5x8xf32, #tile.layout<affine_map<(d0, d1) -> (d1, d0)>, #pg.ints[8, 5]>>
    %2 = tile.launch @move_40_f32_1 chunks 1 : i64 inplace [](%1) : (tensor<5x8xf32, #tile.layout<affine_map<(d0, d1) -> (d1, d0)>, #pg.ints[8, 5]>>) -> tensor<5x8xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<5x8xf32>
  }
}
