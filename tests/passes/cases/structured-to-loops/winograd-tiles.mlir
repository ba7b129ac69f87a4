// Winograd tiles of 2x2 results: the last tiles end with the image, and the last panel is partial.
#map = affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d3)>
#layout = #tile.layout<#map, #pg.ints[2, 16, 2, 4]>
!tensor = tensor<16x2x5xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.pack %u : tensor<16x2x5xf32> -> !tensor
    %y = tile.fused ins(%x, %p, %bias : tensor<1x5x6x2xf32>, !tensor, tensor<5xf32>) domain [4, 5] steps [3, 4]
        loops [#pg.ints[0], #pg.ints[1, 2], #pg.ints[0, 1]] {
    ^bb0(%0: tensor<1x5x6x2xf32>, %1: !tensor, %2: tensor<5xf32>):
      %3 = tile.transform_tiles %0 : tensor<1x5x6x2xf32> images [1, 3, 4] offset [0, 0] size 2 : i64
          matrix <[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]> -> tensor<16x4x2xf32>
      %4 = tile.reduce ins(%3, %1 : tensor<16x4x2xf32>, !tensor) domain [16, 4, 5, 2] parallel 3 : i64
          maps [#map1, #map2] epilogue_maps [] product f32
          schedule <n_dim 2, n_vectors 1, m_dim 1, mr 2, kc 64, lanes 4> epilogue {
      ^bb0(%5: f32):
        tile.yield %5 : f32
      } -> tensor<16x4x5xf32>
      %y_1 = tile.transform_tiles %4 : tensor<16x4x5xf32> epilogue_inputs(%2 : tensor<5xf32>) images [1, 3, 4]
          size 2 : i64 matrix <[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, -1.0]> epilogue_maps [#map3] epilogue {
      ^bb0(%6: f32, %7: f32):
        %8 = arith.addf %6, %7 : f32
        tile.yield %8 : f32
      } -> tensor<1x3x4x5xf32>
      tile.yield %y_1 : tensor<1x3x4x5xf32>
    } -> tensor<1x3x4x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3x4x5xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>
#layout = #tile.layout<#map, #pg.ints[2, 16, 2, 4]>
builtin.module {
  func.func private @move_256_f32_0(%0: index, %1: memref<160xf32>, %2: memref<256xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 32 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant 5 : index
    %7 = arith.constant 4 : index
    scf.for %8 = %3 to %4 step %5 {
      %9 = arith.muli %8, %6 : index
      %10 = vector.load %1[%9] : memref<160xf32>, vector<4xf32>
      %11 = arith.muli %8, %7 : index
      vector.store %10, %2[%11] : memref<256xf32>, vector<4xf32>
    }
    %12 = arith.constant 128 : index
    scf.for %13 = %3 to %4 step %5 {
      %14 = arith.muli %13, %6 : index
      %15 = arith.addi %14, %7 : index
      %16 = memref.load %1[%15] : memref<160xf32>
      %17 = arith.muli %13, %7 : index
      %18 = arith.addi %17, %12 : index
      memref.store %16, %2[%18] : memref<256xf32>
    }
    %19 = arith.constant 0.000000e+00 : f32
    %20 = arith.constant 3 : index
    %21 = arith.constant 129 : index
    scf.for %22 = %3 to %4 step %5 {
      %23 = arith.muli %22, %7 : index
      scf.for %24 = %3 to %20 step %5 {
        %25 = arith.addi %23, %24 : index
        %26 = arith.addi %25, %21 : index
        memref.store %19, %2[%26] : memref<256xf32>
      }
    }
    func.return
  }
  func.func private @addf_subf_mulf_60_f32_0(%0: index, %1: memref<60xf32>, %2: memref<256xf32>, %3: memref<5xf32>, %4: memref<60xf32>) {
    %5 = memref.alloca() : memref<256xf32>
    %6 = memref.alloca() : memref<768xf32>
    %7 = arith.constant 0 : index
    %8 = arith.constant 2 : index
    %9 = arith.constant 1 : index
    %10 = arith.constant 3 : index
    %11 = arith.constant 12 : index
    %12 = arith.constant 4 : index
    %13 = arith.constant 6 : index
    %14 = arith.constant 14 : index
    %15 = arith.constant 16 : index
    %16 = arith.constant 18 : index
    %17 = arith.constant 24 : index
    %18 = arith.constant 26 : index
    %19 = arith.constant 28 : index
    %20 = arith.constant 30 : index
    %21 = arith.constant 36 : index
    %22 = arith.constant 38 : index
    %23 = arith.constant 40 : index
    %24 = arith.constant 42 : index
    %25 = arith.constant 48 : index
    %26 = arith.constant 96 : index
    %27 = arith.constant 144 : index
    %28 = arith.constant 192 : index
    %29 = arith.constant 240 : index
    %30 = arith.constant 288 : index
    %31 = arith.constant 336 : index
    %32 = arith.constant 384 : index
    %33 = arith.constant 432 : index
    %34 = arith.constant 480 : index
    %35 = arith.constant 528 : index
    %36 = arith.constant 576 : index
    %37 = arith.constant 624 : index
    %38 = arith.constant 672 : index
    %39 = arith.constant 720 : index
    %40 = arith.constant 0.000000e+00 : f32
    %41 = arith.constant 8 : index
    %42 = arith.constant -3 : index
    %43 = arith.constant 32 : index
    %44 = arith.constant 64 : index
    %45 = arith.constant 80 : index
    %46 = arith.constant 112 : index
    %47 = arith.constant 128 : index
    %48 = arith.constant 160 : index
    %49 = arith.constant 176 : index
    %50 = arith.constant 208 : index
    %51 = arith.constant 224 : index
    %52 = arith.constant 20 : index
    %53 = arith.constant 10 : index
    %54 = arith.constant 5 : index
    %55 = arith.constant 25 : index
    %56 = arith.constant 9 : index
    %57 = arith.constant 29 : index
    scf.for %58 = %7 to %8 step %9 {
      %59 = arith.muli %58, %10 : index
      scf.for %60 = %7 to %10 step %9 {
        %61 = arith.addi %59, %60 : index
        %62 = arith.minsi %61, %10 : index
        %63 = arith.divsi %62, %8 : index
        %64 = arith.remsi %62, %8 : index
        %65 = arith.muli %63, %8 : index
        %66 = arith.minsi %65, %9 : index
        %67 = arith.muli %66, %11 : index
        %68 = arith.muli %64, %12 : index
        %69 = arith.addi %67, %68 : index
        %70 = vector.load %1[%69] : memref<60xf32>, vector<2xf32>
        %71 = arith.addi %69, %8 : index
        %72 = vector.load %1[%71] : memref<60xf32>, vector<2xf32>
        %73 = arith.addi %69, %12 : index
        %74 = vector.load %1[%73] : memref<60xf32>, vector<2xf32>
        %75 = arith.addi %69, %13 : index
        %76 = vector.load %1[%75] : memref<60xf32>, vector<2xf32>
        %77 = arith.addi %69, %11 : index
        %78 = vector.load %1[%77] : memref<60xf32>, vector<2xf32>
        %79 = arith.addi %69, %14 : index
        %80 = vector.load %1[%79] : memref<60xf32>, vector<2xf32>
        %81 = arith.addi %69, %15 : index
        %82 = vector.load %1[%81] : memref<60xf32>, vector<2xf32>
        %83 = arith.addi %69, %16 : index
        %84 = vector.load %1[%83] : memref<60xf32>, vector<2xf32>
        %85 = arith.addi %69, %17 : index
        %86 = vector.load %1[%85] : memref<60xf32>, vector<2xf32>
        %87 = arith.addi %69, %18 : index
        %88 = vector.load %1[%87] : memref<60xf32>, vector<2xf32>
        %89 = arith.addi %69, %19 : index
        %90 = vector.load %1[%89] : memref<60xf32>, vector<2xf32>
        %91 = arith.addi %69, %20 : index
        %92 = vector.load %1[%91] : memref<60xf32>, vector<2xf32>
        %93 = arith.addi %69, %21 : index
        %94 = vector.load %1[%93] : memref<60xf32>, vector<2xf32>
        %95 = arith.addi %69, %22 : index
        %96 = vector.load %1[%95] : memref<60xf32>, vector<2xf32>
        %97 = arith.addi %69, %23 : index
        %98 = vector.load %1[%97] : memref<60xf32>, vector<2xf32>
        %99 = arith.addi %69, %24 : index
        %100 = vector.load %1[%99] : memref<60xf32>, vector<2xf32>
        %101 = arith.addf %86, %78 : vector<2xf32>
        %102 = arith.subf %86, %78 : vector<2xf32>
        %103 = arith.subf %70, %86 : vector<2xf32>
        %104 = arith.subf %78, %94 : vector<2xf32>
        %105 = arith.addf %88, %80 : vector<2xf32>
        %106 = arith.subf %88, %80 : vector<2xf32>
        %107 = arith.subf %72, %88 : vector<2xf32>
        %108 = arith.subf %80, %96 : vector<2xf32>
        %109 = arith.addf %90, %82 : vector<2xf32>
        %110 = arith.subf %90, %82 : vector<2xf32>
        %111 = arith.subf %74, %90 : vector<2xf32>
        %112 = arith.subf %82, %98 : vector<2xf32>
        %113 = arith.addf %92, %84 : vector<2xf32>
        %114 = arith.subf %92, %84 : vector<2xf32>
        %115 = arith.subf %76, %92 : vector<2xf32>
        %116 = arith.subf %84, %100 : vector<2xf32>
        %117 = arith.addf %111, %107 : vector<2xf32>
        %118 = arith.subf %111, %107 : vector<2xf32>
        %119 = arith.subf %103, %111 : vector<2xf32>
        %120 = arith.subf %107, %115 : vector<2xf32>
        %121 = arith.addf %109, %105 : vector<2xf32>
        %122 = arith.subf %109, %105 : vector<2xf32>
        %123 = arith.subf %101, %109 : vector<2xf32>
        %124 = arith.subf %105, %113 : vector<2xf32>
        %125 = arith.addf %110, %106 : vector<2xf32>
        %126 = arith.subf %110, %106 : vector<2xf32>
        %127 = arith.subf %102, %110 : vector<2xf32>
        %128 = arith.subf %106, %114 : vector<2xf32>
        %129 = arith.addf %112, %108 : vector<2xf32>
        %130 = arith.subf %112, %108 : vector<2xf32>
        %131 = arith.subf %104, %112 : vector<2xf32>
        %132 = arith.subf %108, %116 : vector<2xf32>
        %133 = arith.muli %60, %15 : index
        vector.store %119, %6[%133] : memref<768xf32>, vector<2xf32>
        %134 = arith.addi %133, %25 : index
        vector.store %117, %6[%134] : memref<768xf32>, vector<2xf32>
        %135 = arith.addi %133, %26 : index
        vector.store %118, %6[%135] : memref<768xf32>, vector<2xf32>
        %136 = arith.addi %133, %27 : index
        vector.store %120, %6[%136] : memref<768xf32>, vector<2xf32>
        %137 = arith.addi %133, %28 : index
        vector.store %123, %6[%137] : memref<768xf32>, vector<2xf32>
        %138 = arith.addi %133, %29 : index
        vector.store %121, %6[%138] : memref<768xf32>, vector<2xf32>
        %139 = arith.addi %133, %30 : index
        vector.store %122, %6[%139] : memref<768xf32>, vector<2xf32>
        %140 = arith.addi %133, %31 : index
        vector.store %124, %6[%140] : memref<768xf32>, vector<2xf32>
        %141 = arith.addi %133, %32 : index
        vector.store %127, %6[%141] : memref<768xf32>, vector<2xf32>
        %142 = arith.addi %133, %33 : index
        vector.store %125, %6[%142] : memref<768xf32>, vector<2xf32>
        %143 = arith.addi %133, %34 : index
        vector.store %126, %6[%143] : memref<768xf32>, vector<2xf32>
        %144 = arith.addi %133, %35 : index
        vector.store %128, %6[%144] : memref<768xf32>, vector<2xf32>
        %145 = arith.addi %133, %36 : index
        vector.store %131, %6[%145] : memref<768xf32>, vector<2xf32>
        %146 = arith.addi %133, %37 : index
        vector.store %129, %6[%146] : memref<768xf32>, vector<2xf32>
        %147 = arith.addi %133, %38 : index
        vector.store %130, %6[%147] : memref<768xf32>, vector<2xf32>
        %148 = arith.addi %133, %39 : index
        vector.store %132, %6[%148] : memref<768xf32>, vector<2xf32>
      }
      scf.for %149 = %7 to %15 step %9 {
        %150 = arith.muli %149, %25 : index
        %151 = arith.muli %149, %41 : index
        %152 = arith.muli %149, %15 : index
        scf.for %153 = %7 to %10 step %8 {
          %154 = arith.subi %10, %153 : index
          %155 = arith.minsi %8, %154 : index
          %156 = memref.alloca() : memref<8xf32>
          %157 = arith.muli %153, %15 : index
          %158 = arith.addi %150, %157 : index
          scf.for %159 = %7 to %155 step %9 {
            %160 = arith.muli %159, %12 : index
            %161 = arith.muli %159, %15 : index
            %162 = arith.addi %158, %161 : index
            scf.for %163 = %7 to %12 step %9 {
              %164 = arith.addi %160, %163 : index
              memref.store %40, %156[%164] : memref<8xf32>
              %165 = arith.addi %151, %163 : index
              scf.for %166 = %7 to %8 step %9 {
                %167 = arith.addi %162, %166 : index
                %168 = memref.load %6[%167] : memref<768xf32>
                %169 = arith.muli %166, %12 : index
                %170 = arith.addi %165, %169 : index
                %171 = memref.load %2[%170] : memref<256xf32>
                %172 = memref.load %156[%164] : memref<8xf32>
                %173 = arith.mulf %168, %171 : f32
                %174 = arith.addf %172, %173 : f32
                memref.store %174, %156[%164] : memref<8xf32>
              } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1, again [2]>}
            } {interchange, vectorize = array<i64: 4>}
          } {unroll, interchange}
          %175 = arith.muli %153, %12 : index
          %176 = arith.addi %152, %175 : index
          scf.for %177 = %7 to %155 step %9 {
            %178 = arith.muli %177, %12 : index
            %179 = arith.addi %176, %178 : index
            scf.for %180 = %7 to %12 step %9 {
              %181 = arith.addi %178, %180 : index
              %182 = memref.load %156[%181] : memref<8xf32>
              %183 = arith.addi %179, %180 : index
              memref.store %182, %5[%183] : memref<256xf32>
            } {vectorize = array<i64: 4>}
          } {unroll}
        } {split}
      }
      %184 = arith.muli %58, %42 : index
      %185 = arith.addi %184, %12 : index
      %186 = arith.minsi %185, %10 : index
      scf.for %187 = %7 to %186 step %9 {
        %188 = arith.addi %59, %187 : index
        %189 = arith.divsi %188, %8 : index
        %190 = arith.remsi %188, %8 : index
        %191 = arith.muli %189, %8 : index
        %192 = arith.minsi %191, %9 : index
        %193 = arith.muli %187, %12 : index
        %194 = vector.load %5[%193] : memref<256xf32>, vector<4xf32>
        %195 = arith.addi %193, %15 : index
        %196 = vector.load %5[%195] : memref<256xf32>, vector<4xf32>
        %197 = arith.addi %193, %43 : index
        %198 = vector.load %5[%197] : memref<256xf32>, vector<4xf32>
        %199 = arith.addi %193, %25 : index
        %200 = vector.load %5[%199] : memref<256xf32>, vector<4xf32>
        %201 = arith.addi %193, %44 : index
        %202 = vector.load %5[%201] : memref<256xf32>, vector<4xf32>
        %203 = arith.addi %193, %45 : index
        %204 = vector.load %5[%203] : memref<256xf32>, vector<4xf32>
        %205 = arith.addi %193, %26 : index
        %206 = vector.load %5[%205] : memref<256xf32>, vector<4xf32>
        %207 = arith.addi %193, %46 : index
        %208 = vector.load %5[%207] : memref<256xf32>, vector<4xf32>
        %209 = arith.addi %193, %47 : index
        %210 = vector.load %5[%209] : memref<256xf32>, vector<4xf32>
        %211 = arith.addi %193, %27 : index
        %212 = vector.load %5[%211] : memref<256xf32>, vector<4xf32>
        %213 = arith.addi %193, %48 : index
        %214 = vector.load %5[%213] : memref<256xf32>, vector<4xf32>
        %215 = arith.addi %193, %49 : index
        %216 = vector.load %5[%215] : memref<256xf32>, vector<4xf32>
        %217 = arith.addi %193, %28 : index
        %218 = vector.load %5[%217] : memref<256xf32>, vector<4xf32>
        %219 = arith.addi %193, %50 : index
        %220 = vector.load %5[%219] : memref<256xf32>, vector<4xf32>
        %221 = arith.addi %193, %51 : index
        %222 = vector.load %5[%221] : memref<256xf32>, vector<4xf32>
        %223 = arith.addi %193, %29 : index
        %224 = vector.load %5[%223] : memref<256xf32>, vector<4xf32>
        %225 = arith.addf %202, %210 : vector<4xf32>
        %226 = arith.subf %202, %210 : vector<4xf32>
        %227 = arith.addf %194, %225 : vector<4xf32>
        %228 = arith.subf %226, %218 : vector<4xf32>
        %229 = arith.addf %204, %212 : vector<4xf32>
        %230 = arith.subf %204, %212 : vector<4xf32>
        %231 = arith.addf %196, %229 : vector<4xf32>
        %232 = arith.subf %230, %220 : vector<4xf32>
        %233 = arith.addf %206, %214 : vector<4xf32>
        %234 = arith.subf %206, %214 : vector<4xf32>
        %235 = arith.addf %198, %233 : vector<4xf32>
        %236 = arith.subf %234, %222 : vector<4xf32>
        %237 = arith.addf %208, %216 : vector<4xf32>
        %238 = arith.subf %208, %216 : vector<4xf32>
        %239 = arith.addf %200, %237 : vector<4xf32>
        %240 = arith.subf %238, %224 : vector<4xf32>
        %241 = arith.addf %231, %235 : vector<4xf32>
        %242 = arith.subf %231, %235 : vector<4xf32>
        %243 = arith.addf %227, %241 : vector<4xf32>
        %244 = arith.subf %242, %239 : vector<4xf32>
        %245 = arith.addf %232, %236 : vector<4xf32>
        %246 = arith.subf %232, %236 : vector<4xf32>
        %247 = arith.addf %228, %245 : vector<4xf32>
        %248 = arith.subf %246, %240 : vector<4xf32>
        %249 = arith.cmpi sge, %192, %191 : index
        %250 = arith.muli %192, %52 : index
        %251 = arith.muli %190, %53 : index
        %252 = arith.addi %250, %251 : index
        %253 = arith.addi %252, %54 : index
        scf.if %249 {
          %254 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %255 = arith.addf %243, %254 : vector<4xf32>
          vector.store %255, %4[%252] : memref<60xf32>, vector<4xf32>
          %256 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %257 = arith.addf %244, %256 : vector<4xf32>
          vector.store %257, %4[%253] : memref<60xf32>, vector<4xf32>
        }
        %258 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %259 = arith.addf %247, %258 : vector<4xf32>
        %260 = arith.addi %252, %52 : index
        vector.store %259, %4[%260] : memref<60xf32>, vector<4xf32>
        %261 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %262 = arith.addf %248, %261 : vector<4xf32>
        %263 = arith.addi %252, %55 : index
        vector.store %262, %4[%263] : memref<60xf32>, vector<4xf32>
      }
      scf.for %264 = %7 to %15 step %9 {
        %265 = arith.muli %264, %25 : index
        %266 = arith.muli %264, %41 : index
        %267 = arith.muli %264, %15 : index
        scf.for %268 = %7 to %10 step %8 {
          %269 = arith.subi %10, %268 : index
          %270 = arith.minsi %8, %269 : index
          %271 = memref.alloca() : memref<8xf32>
          %272 = arith.muli %268, %15 : index
          %273 = arith.addi %265, %272 : index
          scf.for %274 = %7 to %270 step %9 {
            %275 = arith.muli %274, %12 : index
            %276 = arith.muli %274, %15 : index
            %277 = arith.addi %273, %276 : index
            scf.for %278 = %7 to %12 step %9 {
              %279 = arith.addi %275, %278 : index
              memref.store %40, %271[%279] : memref<8xf32>
              %280 = arith.addi %266, %278 : index
              scf.for %281 = %7 to %8 step %9 {
                %282 = arith.addi %277, %281 : index
                %283 = memref.load %6[%282] : memref<768xf32>
                %284 = arith.muli %281, %12 : index
                %285 = arith.addi %280, %284 : index
                %286 = arith.addi %285, %47 : index
                %287 = memref.load %2[%286] : memref<256xf32>
                %288 = memref.load %271[%279] : memref<8xf32>
                %289 = arith.mulf %283, %287 : f32
                %290 = arith.addf %288, %289 : f32
                memref.store %290, %271[%279] : memref<8xf32>
              } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1, again [2]>}
            } {interchange, vectorize = array<i64: 4>}
          } {unroll, interchange}
          %291 = arith.muli %268, %12 : index
          %292 = arith.addi %267, %291 : index
          scf.for %293 = %7 to %270 step %9 {
            %294 = arith.muli %293, %12 : index
            %295 = arith.addi %292, %294 : index
            scf.for %296 = %7 to %12 step %9 {
              %297 = arith.addi %294, %296 : index
              %298 = memref.load %271[%297] : memref<8xf32>
              %299 = arith.addi %295, %296 : index
              memref.store %298, %5[%299] : memref<256xf32>
            } {vectorize = array<i64: 4>}
          } {unroll}
        } {split}
      }
      scf.for %300 = %7 to %186 step %9 {
        %301 = arith.addi %59, %300 : index
        %302 = arith.divsi %301, %8 : index
        %303 = arith.remsi %301, %8 : index
        %304 = arith.muli %302, %8 : index
        %305 = arith.minsi %304, %9 : index
        %306 = arith.muli %300, %12 : index
        %307 = vector.load %5[%306] : memref<256xf32>, vector<4xf32>
        %308 = arith.addi %306, %15 : index
        %309 = vector.load %5[%308] : memref<256xf32>, vector<4xf32>
        %310 = arith.addi %306, %43 : index
        %311 = vector.load %5[%310] : memref<256xf32>, vector<4xf32>
        %312 = arith.addi %306, %25 : index
        %313 = vector.load %5[%312] : memref<256xf32>, vector<4xf32>
        %314 = arith.addi %306, %44 : index
        %315 = vector.load %5[%314] : memref<256xf32>, vector<4xf32>
        %316 = arith.addi %306, %45 : index
        %317 = vector.load %5[%316] : memref<256xf32>, vector<4xf32>
        %318 = arith.addi %306, %26 : index
        %319 = vector.load %5[%318] : memref<256xf32>, vector<4xf32>
        %320 = arith.addi %306, %46 : index
        %321 = vector.load %5[%320] : memref<256xf32>, vector<4xf32>
        %322 = arith.addi %306, %47 : index
        %323 = vector.load %5[%322] : memref<256xf32>, vector<4xf32>
        %324 = arith.addi %306, %27 : index
        %325 = vector.load %5[%324] : memref<256xf32>, vector<4xf32>
        %326 = arith.addi %306, %48 : index
        %327 = vector.load %5[%326] : memref<256xf32>, vector<4xf32>
        %328 = arith.addi %306, %49 : index
        %329 = vector.load %5[%328] : memref<256xf32>, vector<4xf32>
        %330 = arith.addi %306, %28 : index
        %331 = vector.load %5[%330] : memref<256xf32>, vector<4xf32>
        %332 = arith.addi %306, %50 : index
        %333 = vector.load %5[%332] : memref<256xf32>, vector<4xf32>
        %334 = arith.addi %306, %51 : index
        %335 = vector.load %5[%334] : memref<256xf32>, vector<4xf32>
        %336 = arith.addi %306, %29 : index
        %337 = vector.load %5[%336] : memref<256xf32>, vector<4xf32>
        %338 = arith.addf %315, %323 : vector<4xf32>
        %339 = arith.subf %315, %323 : vector<4xf32>
        %340 = arith.addf %307, %338 : vector<4xf32>
        %341 = arith.subf %339, %331 : vector<4xf32>
        %342 = arith.addf %317, %325 : vector<4xf32>
        %343 = arith.subf %317, %325 : vector<4xf32>
        %344 = arith.addf %309, %342 : vector<4xf32>
        %345 = arith.subf %343, %333 : vector<4xf32>
        %346 = arith.addf %319, %327 : vector<4xf32>
        %347 = arith.subf %319, %327 : vector<4xf32>
        %348 = arith.addf %311, %346 : vector<4xf32>
        %349 = arith.subf %347, %335 : vector<4xf32>
        %350 = arith.addf %321, %329 : vector<4xf32>
        %351 = arith.subf %321, %329 : vector<4xf32>
        %352 = arith.addf %313, %350 : vector<4xf32>
        %353 = arith.subf %351, %337 : vector<4xf32>
        %354 = arith.addf %344, %348 : vector<4xf32>
        %355 = arith.subf %344, %348 : vector<4xf32>
        %356 = arith.addf %340, %354 : vector<4xf32>
        %357 = arith.subf %355, %352 : vector<4xf32>
        %358 = arith.addf %345, %349 : vector<4xf32>
        %359 = arith.subf %345, %349 : vector<4xf32>
        %360 = arith.addf %341, %358 : vector<4xf32>
        %361 = arith.subf %359, %353 : vector<4xf32>
        %362 = arith.cmpi sge, %305, %304 : index
        %363 = arith.muli %305, %52 : index
        %364 = arith.muli %303, %53 : index
        %365 = arith.addi %363, %364 : index
        %366 = arith.addi %365, %12 : index
        %367 = arith.addi %365, %56 : index
        scf.if %362 {
          %368 = vector.extract %356[0] : f32 from vector<4xf32>
          %369 = memref.load %3[%12] : memref<5xf32>
          %370 = arith.addf %368, %369 : f32
          memref.store %370, %4[%366] : memref<60xf32>
          %371 = vector.extract %357[0] : f32 from vector<4xf32>
          %372 = memref.load %3[%12] : memref<5xf32>
          %373 = arith.addf %371, %372 : f32
          memref.store %373, %4[%367] : memref<60xf32>
        }
        %374 = vector.extract %360[0] : f32 from vector<4xf32>
        %375 = memref.load %3[%12] : memref<5xf32>
        %376 = arith.addf %374, %375 : f32
        %377 = arith.addi %365, %17 : index
        memref.store %376, %4[%377] : memref<60xf32>
        %378 = vector.extract %361[0] : f32 from vector<4xf32>
        %379 = memref.load %3[%12] : memref<5xf32>
        %380 = arith.addf %378, %379 : f32
        %381 = arith.addi %365, %57 : index
        memref.store %380, %4[%381] : memref<60xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.launch @move_256_f32_0 chunks 1 : i64 inplace [](%u) : (tensor<16x2x5xf32>) -> tensor<16x2x5xf32, #layout>
    %y = tile.launch @addf_subf_mulf_60_f32_0 chunks 1 : i64 inplace [](%x, %p, %bias) : (tensor<1x5x6x2xf32>, tensor<16x2x5xf32, #layout>, tensor<5xf32>) -> tensor<1x3x4x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3x4x5xf32>
  }
}
