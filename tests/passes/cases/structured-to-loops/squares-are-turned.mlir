// A pack that puts side by side what is not: squares of vectors change rows for columns in registers, edges go one by one.
// -p structured-to-loops{vector-bytes=16}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<5x8xf32>):
    %1 = tile.pack %0 : tensor<5x8xf32> -> tensor<5x8xf32, #tile.layout<affine_map<(d0, d1) -> (d1, d0)>, #pg.ints[8, 5]>>
    %2 = tile.unpack %1 : tensor<5x8xf32, #tile.layout<affine_map<(d0, d1) -> (d1, d0)>, #pg.ints[8, 5]>> -> tensor<5x8xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<5x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<5x8xf32>):
    %1 = tile.kernel chunks 1 : i64 inplace [] ins(%0 : tensor<5x8xf32>) {
    ^bb0(%2: index, %3: memref<40xf32>, %4: memref<40xf32>):
      %5 = arith.constant 0 : index
      %6 = arith.constant 8 : index
      %7 = arith.constant 4 : index
      %8 = arith.constant 16 : index
      %9 = arith.constant 24 : index
      %10 = arith.constant 5 : index
      %11 = arith.constant 10 : index
      %12 = arith.constant 15 : index
      scf.for %13 = %5 to %6 step %7 {
        %14 = vector.load %3[%13] : memref<40xf32>, vector<4xf32>
        %15 = arith.addi %13, %6 : index
        %16 = vector.load %3[%15] : memref<40xf32>, vector<4xf32>
        %17 = arith.addi %13, %8 : index
        %18 = vector.load %3[%17] : memref<40xf32>, vector<4xf32>
        %19 = arith.addi %13, %9 : index
        %20 = vector.load %3[%19] : memref<40xf32>, vector<4xf32>
        %21 = vector.shuffle %14, %16 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
        %22 = vector.shuffle %14, %16 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
        %23 = vector.shuffle %18, %20 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
        %24 = vector.shuffle %18, %20 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
        %25 = vector.shuffle %21, %23 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
        %26 = vector.shuffle %21, %23 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
        %27 = vector.shuffle %22, %24 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
        %28 = vector.shuffle %22, %24 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
        %29 = arith.muli %13, %10 : index
        vector.store %25, %4[%29] : memref<40xf32>, vector<4xf32>
        %30 = arith.addi %29, %10 : index
        vector.store %27, %4[%30] : memref<40xf32>, vector<4xf32>
        %31 = arith.addi %29, %11 : index
        vector.store %26, %4[%31] : memref<40xf32>, vector<4xf32>
        %32 = arith.addi %29, %12 : index
        vector.store %28, %4[%32] : memref<40xf32>, vector<4xf32>
      }
      %33 = arith.constant 32 : index
      %34 = memref.load %3[%33] : memref<40xf32>
      memref.store %34, %4[%7] : memref<40xf32>
      %35 = arith.constant 33 : index
      %36 = memref.load %3[%35] : memref<40xf32>
      %37 = arith.constant 9 : index
      memref.store %36, %4[%37] : memref<40xf32>
      %38 = arith.constant 34 : index
      %39 = memref.load %3[%38] : memref<40xf32>
      %40 = arith.constant 14 : index
      memref.store %39, %4[%40] : memref<40xf32>
      %41 = arith.constant 35 : index
      %42 = memref.load %3[%41] : memref<40xf32>
      %43 = arith.constant 19 : index
      memref.store %42, %4[%43] : memref<40xf32>
      %44 = arith.constant 36 : index
      %45 = memref.load %3[%44] : memref<40xf32>
      memref.store %45, %4[%9] : memref<40xf32>
      %46 = arith.constant 37 : index
      %47 = memref.load %3[%46] : memref<40xf32>
      %48 = arith.constant 29 : index
      memref.store %47, %4[%48] : memref<40xf32>
      %49 = arith.constant 38 : index
      %50 = memref.load %3[%49] : memref<40xf32>
      memref.store %50, %4[%38] : memref<40xf32>
      %51 = arith.constant 39 : index
      %52 = memref.load %3[%51] : memref<40xf32>
      memref.store %52, %4[%51] : memref<40xf32>
    } -> tensor<5x8xf32, #tile.layout<affine_map<(d0, d1) -> (d1, d0)>, #pg.ints[8, 5]>>
    %2 = tile.kernel chunks 1 : i64 inplace [] ins(%1 : tensor<5x8xf32, #tile.layout<affine_map<(d0, d1) -> (d1, d0)>, #pg.ints[8, 5]>>) {
    ^bb0(%3: index, %4: memref<40xf32>, %5: memref<40xf32>):
      %6 = arith.constant 0 : index
      %7 = arith.constant 8 : index
      %8 = arith.constant 4 : index
      %9 = arith.constant 5 : index
      %10 = arith.constant 10 : index
      %11 = arith.constant 15 : index
      %12 = arith.constant 16 : index
      %13 = arith.constant 24 : index
      scf.for %14 = %6 to %7 step %8 {
        %15 = arith.muli %14, %9 : index
        %16 = vector.load %4[%15] : memref<40xf32>, vector<4xf32>
        %17 = arith.addi %15, %9 : index
        %18 = vector.load %4[%17] : memref<40xf32>, vector<4xf32>
        %19 = arith.addi %15, %10 : index
        %20 = vector.load %4[%19] : memref<40xf32>, vector<4xf32>
        %21 = arith.addi %15, %11 : index
        %22 = vector.load %4[%21] : memref<40xf32>, vector<4xf32>
        %23 = vector.shuffle %16, %18 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
        %24 = vector.shuffle %16, %18 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
        %25 = vector.shuffle %20, %22 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
        %26 = vector.shuffle %20, %22 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
        %27 = vector.shuffle %23, %25 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
        %28 = vector.shuffle %23, %25 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
        %29 = vector.shuffle %24, %26 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
        %30 = vector.shuffle %24, %26 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
        vector.store %27, %5[%14] : memref<40xf32>, vector<4xf32>
        %31 = arith.addi %14, %7 : index
        vector.store %29, %5[%31] : memref<40xf32>, vector<4xf32>
        %32 = arith.addi %14, %12 : index
        vector.store %28, %5[%32] : memref<40xf32>, vector<4xf32>
        %33 = arith.addi %14, %13 : index
        vector.store %30, %5[%33] : memref<40xf32>, vector<4xf32>
      }
      %34 = arith.constant 32 : index
      %35 = arith.constant 9 : index
      %36 = arith.constant 33 : index
      %37 = arith.constant 14 : index
      %38 = arith.constant 34 : index
      %39 = arith.constant 19 : index
      %40 = arith.constant 35 : index
      scf.for %41 = %6 to %7 step %8 {
        %42 = arith.muli %41, %9 : index
        %43 = arith.addi %42, %8 : index
        %44 = memref.load %4[%43] : memref<40xf32>
        %45 = arith.addi %41, %34 : index
        memref.store %44, %5[%45] : memref<40xf32>
        %46 = arith.addi %42, %35 : index
        %47 = memref.load %4[%46] : memref<40xf32>
        %48 = arith.addi %41, %36 : index
        memref.store %47, %5[%48] : memref<40xf32>
        %49 = arith.addi %42, %37 : index
        %50 = memref.load %4[%49] : memref<40xf32>
        %51 = arith.addi %41, %38 : index
        memref.store %50, %5[%51] : memref<40xf32>
        %52 = arith.addi %42, %39 : index
        %53 = memref.load %4[%52] : memref<40xf32>
        %54 = arith.addi %41, %40 : index
        memref.store %53, %5[%54] : memref<40xf32>
      }
    } -> tensor<5x8xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<5x8xf32>
  }
}
