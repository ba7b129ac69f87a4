// Elements that a shifted border tile shares with the tile before it count as zero.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"dy">] {
  ^bb0(%dy: tensor<1x3x4x4xf32>):
    %t = tile.transform_tiles %dy : tensor<1x3x4x4xf32> images [1, 3, 4] offset [0, 0] size 2 : i64 matrix <[1.0, 0.0], [1.0, 1.0], [1.0, -1.0], [0.0, -1.0]> -> tensor<16x4x4xf32>
    pg.return [#pg.bytes<"t">], %t : tensor<16x4x4xf32>
  }
}
// -----
builtin.module {
  func.func private @cmpi_select_addf_256_f32_0(%0: index, %1: memref<48xf32>, %2: memref<256xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 4 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant 2 : index
    %7 = arith.constant 16 : index
    %8 = arith.constant 8 : index
    %9 = arith.constant 0.000000e+00 : f32
    %10 = vector.broadcast %9 : f32 to vector<4xf32>
    %11 = arith.constant 20 : index
    %12 = arith.constant -1.000000e+00 : f32
    %13 = vector.broadcast %12 : f32 to vector<4xf32>
    %14 = arith.constant 32 : index
    %15 = arith.constant 48 : index
    %16 = arith.constant 64 : index
    %17 = arith.constant 80 : index
    %18 = arith.constant 96 : index
    %19 = arith.constant 112 : index
    %20 = arith.constant 128 : index
    %21 = arith.constant 144 : index
    %22 = arith.constant 160 : index
    %23 = arith.constant 176 : index
    %24 = arith.constant 192 : index
    %25 = arith.constant 208 : index
    %26 = arith.constant 224 : index
    %27 = arith.constant 240 : index
    scf.for %28 = %3 to %4 step %5 {
      %29 = arith.divsi %28, %6 : index
      %30 = arith.remsi %28, %6 : index
      %31 = arith.muli %29, %6 : index
      %32 = arith.minsi %31, %5 : index
      %33 = arith.muli %32, %7 : index
      %34 = arith.muli %30, %8 : index
      %35 = arith.addi %33, %34 : index
      %36 = vector.load %1[%35] : memref<48xf32>, vector<4xf32>
      %37 = arith.cmpi sge, %32, %31 : index
      %38 = arith.select %37, %36, %10 : vector<4xf32>
      %39 = arith.addi %35, %4 : index
      %40 = vector.load %1[%39] : memref<48xf32>, vector<4xf32>
      %41 = arith.select %37, %40, %10 : vector<4xf32>
      %42 = arith.addi %35, %7 : index
      %43 = vector.load %1[%42] : memref<48xf32>, vector<4xf32>
      %44 = arith.addi %35, %11 : index
      %45 = vector.load %1[%44] : memref<48xf32>, vector<4xf32>
      %46 = arith.addf %38, %43 : vector<4xf32>
      %47 = arith.subf %38, %43 : vector<4xf32>
      %48 = arith.mulf %43, %13 : vector<4xf32>
      %49 = arith.addf %41, %45 : vector<4xf32>
      %50 = arith.subf %41, %45 : vector<4xf32>
      %51 = arith.mulf %45, %13 : vector<4xf32>
      %52 = arith.addf %38, %41 : vector<4xf32>
      %53 = arith.subf %38, %41 : vector<4xf32>
      %54 = arith.mulf %41, %13 : vector<4xf32>
      %55 = arith.addf %46, %49 : vector<4xf32>
      %56 = arith.subf %46, %49 : vector<4xf32>
      %57 = arith.mulf %49, %13 : vector<4xf32>
      %58 = arith.addf %47, %50 : vector<4xf32>
      %59 = arith.subf %47, %50 : vector<4xf32>
      %60 = arith.mulf %50, %13 : vector<4xf32>
      %61 = arith.addf %48, %51 : vector<4xf32>
      %62 = arith.subf %48, %51 : vector<4xf32>
      %63 = arith.mulf %51, %13 : vector<4xf32>
      %64 = arith.muli %28, %4 : index
      vector.store %38, %2[%64] : memref<256xf32>, vector<4xf32>
      %65 = arith.addi %64, %7 : index
      vector.store %52, %2[%65] : memref<256xf32>, vector<4xf32>
      %66 = arith.addi %64, %14 : index
      vector.store %53, %2[%66] : memref<256xf32>, vector<4xf32>
      %67 = arith.addi %64, %15 : index
      vector.store %54, %2[%67] : memref<256xf32>, vector<4xf32>
      %68 = arith.addi %64, %16 : index
      vector.store %46, %2[%68] : memref<256xf32>, vector<4xf32>
      %69 = arith.addi %64, %17 : index
      vector.store %55, %2[%69] : memref<256xf32>, vector<4xf32>
      %70 = arith.addi %64, %18 : index
      vector.store %56, %2[%70] : memref<256xf32>, vector<4xf32>
      %71 = arith.addi %64, %19 : index
      vector.store %57, %2[%71] : memref<256xf32>, vector<4xf32>
      %72 = arith.addi %64, %20 : index
      vector.store %47, %2[%72] : memref<256xf32>, vector<4xf32>
      %73 = arith.addi %64, %21 : index
      vector.store %58, %2[%73] : memref<256xf32>, vector<4xf32>
      %74 = arith.addi %64, %22 : index
      vector.store %59, %2[%74] : memref<256xf32>, vector<4xf32>
      %75 = arith.addi %64, %23 : index
      vector.store %60, %2[%75] : memref<256xf32>, vector<4xf32>
      %76 = arith.addi %64, %24 : index
      vector.store %48, %2[%76] : memref<256xf32>, vector<4xf32>
      %77 = arith.addi %64, %25 : index
      vector.store %61, %2[%77] : memref<256xf32>, vector<4xf32>
      %78 = arith.addi %64, %26 : index
      vector.store %62, %2[%78] : memref<256xf32>, vector<4xf32>
      %79 = arith.addi %64, %27 : index
      vector.store %63, %2[%79] : memref<256xf32>, vector<4xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"dy">] {
  ^bb0(%dy: tensor<1x3x4x4xf32>):
    %t = tile.launch @cmpi_select_addf_256_f32_0 chunks 1 : i64 inplace [](%dy) : (tensor<1x3x4x4xf32>) -> tensor<16x4x4xf32>
    pg.return [#pg.bytes<"t">], %t : tensor<16x4x4xf32>
  }
}
