// Tiles of 2x2 results by Winograd: the last ones end where the image ends, the last panel is short.
#map = affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3)>
#layout = #tile.layout<#map, #pg.ints[2, 16, 2, 4]>
!tensor = tensor<16x2x5xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.pack %u : tensor<16x2x5xf32> -> !tensor
    %y = tile.winograd %x, %p : tensor<1x5x6x2xf32>, !tensor epilogue_inputs(%bias : tensor<5xf32>) domain [1, 3, 4, 5]
        offset [0, 0] size 2 : i64 tiles 3 : i64 epilogue_maps [#map1]
        schedule <n_dim 2, n_vectors 1, m_dim 1, mr 2, kc 64, lanes 4> epilogue {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %0, %1 : f32
      tile.yield %2 : f32
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
  func.func private @addf_subf_fma_60_f32_0(%0: index, %1: memref<60xf32>, %2: memref<256xf32>, %3: memref<5xf32>, %4: memref<60xf32>) {
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
    %41 = vector.broadcast %40 : f32 to vector<4xf32>
    %42 = arith.constant 8 : index
    %43 = arith.constant 32 : index
    %44 = arith.constant -3 : index
    %45 = arith.constant 64 : index
    %46 = arith.constant 80 : index
    %47 = arith.constant 112 : index
    %48 = arith.constant 128 : index
    %49 = arith.constant 160 : index
    %50 = arith.constant 176 : index
    %51 = arith.constant 208 : index
    %52 = arith.constant 224 : index
    %53 = arith.constant 20 : index
    %54 = arith.constant 10 : index
    %55 = arith.constant 5 : index
    %56 = arith.constant 25 : index
    %57 = arith.constant 136 : index
    %58 = arith.constant 140 : index
    %59 = arith.constant 9 : index
    %60 = arith.constant 29 : index
    scf.for %61 = %7 to %8 step %9 {
      %62 = arith.muli %61, %10 : index
      scf.for %63 = %7 to %10 step %9 {
        %64 = arith.addi %62, %63 : index
        %65 = arith.minsi %64, %10 : index
        %66 = arith.divsi %65, %8 : index
        %67 = arith.remsi %65, %8 : index
        %68 = arith.muli %66, %8 : index
        %69 = arith.minsi %68, %9 : index
        %70 = arith.muli %69, %11 : index
        %71 = arith.muli %67, %12 : index
        %72 = arith.addi %70, %71 : index
        %73 = vector.load %1[%72] : memref<60xf32>, vector<2xf32>
        %74 = arith.addi %72, %8 : index
        %75 = vector.load %1[%74] : memref<60xf32>, vector<2xf32>
        %76 = arith.addi %72, %12 : index
        %77 = vector.load %1[%76] : memref<60xf32>, vector<2xf32>
        %78 = arith.addi %72, %13 : index
        %79 = vector.load %1[%78] : memref<60xf32>, vector<2xf32>
        %80 = arith.addi %72, %11 : index
        %81 = vector.load %1[%80] : memref<60xf32>, vector<2xf32>
        %82 = arith.addi %72, %14 : index
        %83 = vector.load %1[%82] : memref<60xf32>, vector<2xf32>
        %84 = arith.addi %72, %15 : index
        %85 = vector.load %1[%84] : memref<60xf32>, vector<2xf32>
        %86 = arith.addi %72, %16 : index
        %87 = vector.load %1[%86] : memref<60xf32>, vector<2xf32>
        %88 = arith.addi %72, %17 : index
        %89 = vector.load %1[%88] : memref<60xf32>, vector<2xf32>
        %90 = arith.addi %72, %18 : index
        %91 = vector.load %1[%90] : memref<60xf32>, vector<2xf32>
        %92 = arith.addi %72, %19 : index
        %93 = vector.load %1[%92] : memref<60xf32>, vector<2xf32>
        %94 = arith.addi %72, %20 : index
        %95 = vector.load %1[%94] : memref<60xf32>, vector<2xf32>
        %96 = arith.addi %72, %21 : index
        %97 = vector.load %1[%96] : memref<60xf32>, vector<2xf32>
        %98 = arith.addi %72, %22 : index
        %99 = vector.load %1[%98] : memref<60xf32>, vector<2xf32>
        %100 = arith.addi %72, %23 : index
        %101 = vector.load %1[%100] : memref<60xf32>, vector<2xf32>
        %102 = arith.addi %72, %24 : index
        %103 = vector.load %1[%102] : memref<60xf32>, vector<2xf32>
        %104 = arith.addf %89, %81 : vector<2xf32>
        %105 = arith.subf %89, %81 : vector<2xf32>
        %106 = arith.subf %73, %89 : vector<2xf32>
        %107 = arith.subf %81, %97 : vector<2xf32>
        %108 = arith.addf %91, %83 : vector<2xf32>
        %109 = arith.subf %91, %83 : vector<2xf32>
        %110 = arith.subf %75, %91 : vector<2xf32>
        %111 = arith.subf %83, %99 : vector<2xf32>
        %112 = arith.addf %93, %85 : vector<2xf32>
        %113 = arith.subf %93, %85 : vector<2xf32>
        %114 = arith.subf %77, %93 : vector<2xf32>
        %115 = arith.subf %85, %101 : vector<2xf32>
        %116 = arith.addf %95, %87 : vector<2xf32>
        %117 = arith.subf %95, %87 : vector<2xf32>
        %118 = arith.subf %79, %95 : vector<2xf32>
        %119 = arith.subf %87, %103 : vector<2xf32>
        %120 = arith.addf %114, %110 : vector<2xf32>
        %121 = arith.subf %114, %110 : vector<2xf32>
        %122 = arith.subf %106, %114 : vector<2xf32>
        %123 = arith.subf %110, %118 : vector<2xf32>
        %124 = arith.addf %112, %108 : vector<2xf32>
        %125 = arith.subf %112, %108 : vector<2xf32>
        %126 = arith.subf %104, %112 : vector<2xf32>
        %127 = arith.subf %108, %116 : vector<2xf32>
        %128 = arith.addf %113, %109 : vector<2xf32>
        %129 = arith.subf %113, %109 : vector<2xf32>
        %130 = arith.subf %105, %113 : vector<2xf32>
        %131 = arith.subf %109, %117 : vector<2xf32>
        %132 = arith.addf %115, %111 : vector<2xf32>
        %133 = arith.subf %115, %111 : vector<2xf32>
        %134 = arith.subf %107, %115 : vector<2xf32>
        %135 = arith.subf %111, %119 : vector<2xf32>
        %136 = arith.muli %63, %15 : index
        vector.store %122, %6[%136] : memref<768xf32>, vector<2xf32>
        %137 = arith.addi %136, %25 : index
        vector.store %120, %6[%137] : memref<768xf32>, vector<2xf32>
        %138 = arith.addi %136, %26 : index
        vector.store %121, %6[%138] : memref<768xf32>, vector<2xf32>
        %139 = arith.addi %136, %27 : index
        vector.store %123, %6[%139] : memref<768xf32>, vector<2xf32>
        %140 = arith.addi %136, %28 : index
        vector.store %126, %6[%140] : memref<768xf32>, vector<2xf32>
        %141 = arith.addi %136, %29 : index
        vector.store %124, %6[%141] : memref<768xf32>, vector<2xf32>
        %142 = arith.addi %136, %30 : index
        vector.store %125, %6[%142] : memref<768xf32>, vector<2xf32>
        %143 = arith.addi %136, %31 : index
        vector.store %127, %6[%143] : memref<768xf32>, vector<2xf32>
        %144 = arith.addi %136, %32 : index
        vector.store %130, %6[%144] : memref<768xf32>, vector<2xf32>
        %145 = arith.addi %136, %33 : index
        vector.store %128, %6[%145] : memref<768xf32>, vector<2xf32>
        %146 = arith.addi %136, %34 : index
        vector.store %129, %6[%146] : memref<768xf32>, vector<2xf32>
        %147 = arith.addi %136, %35 : index
        vector.store %131, %6[%147] : memref<768xf32>, vector<2xf32>
        %148 = arith.addi %136, %36 : index
        vector.store %134, %6[%148] : memref<768xf32>, vector<2xf32>
        %149 = arith.addi %136, %37 : index
        vector.store %132, %6[%149] : memref<768xf32>, vector<2xf32>
        %150 = arith.addi %136, %38 : index
        vector.store %133, %6[%150] : memref<768xf32>, vector<2xf32>
        %151 = arith.addi %136, %39 : index
        vector.store %135, %6[%151] : memref<768xf32>, vector<2xf32>
      }
      scf.for %152 = %7 to %15 step %9 {
        %153 = arith.muli %152, %42 : index
        %154 = arith.muli %152, %25 : index
        %155, %156 = scf.for %157 = %7 to %8 step %9 iter_args(%158 = %41, %159 = %41) -> (vector<4xf32>, vector<4xf32>) {
          %160 = arith.muli %157, %8 : index
          %161 = arith.addi %153, %160 : index
          %162 = arith.addi %161, %42 : index
          tile.prefetch %2[%162] : memref<256xf32>
          %163 = arith.addi %154, %157 : index
          %164 = memref.load %6[%163] : memref<768xf32>
          %165 = vector.broadcast %164 : f32 to vector<4xf32>
          %166 = arith.muli %157, %12 : index
          %167 = arith.addi %153, %166 : index
          %168 = vector.load %2[%167] : memref<256xf32>, vector<4xf32>
          %169 = vector.fma %165, %168, %158 : vector<4xf32>
          %170 = arith.addi %163, %15 : index
          %171 = memref.load %6[%170] : memref<768xf32>
          %172 = vector.broadcast %171 : f32 to vector<4xf32>
          %173 = vector.fma %172, %168, %159 : vector<4xf32>
          scf.yield %169, %173 : vector<4xf32>, vector<4xf32>
        }
        %174 = arith.muli %152, %15 : index
        vector.store %155, %5[%174] : memref<256xf32>, vector<4xf32>
        %175 = arith.addi %174, %12 : index
        vector.store %156, %5[%175] : memref<256xf32>, vector<4xf32>
        %176 = scf.for %177 = %7 to %8 step %9 iter_args(%178 = %41) -> (vector<4xf32>) {
          %179 = arith.muli %177, %8 : index
          %180 = arith.addi %153, %179 : index
          %181 = arith.addi %180, %11 : index
          tile.prefetch %2[%181] : memref<256xf32>
          %182 = arith.addi %154, %177 : index
          %183 = arith.addi %182, %43 : index
          %184 = memref.load %6[%183] : memref<768xf32>
          %185 = vector.broadcast %184 : f32 to vector<4xf32>
          %186 = arith.muli %177, %12 : index
          %187 = arith.addi %153, %186 : index
          %188 = vector.load %2[%187] : memref<256xf32>, vector<4xf32>
          %189 = vector.fma %185, %188, %178 : vector<4xf32>
          scf.yield %189 : vector<4xf32>
        }
        %190 = arith.addi %174, %42 : index
        vector.store %176, %5[%190] : memref<256xf32>, vector<4xf32>
      }
      %191 = arith.muli %61, %44 : index
      %192 = arith.addi %191, %12 : index
      %193 = arith.minsi %192, %10 : index
      scf.for %194 = %7 to %193 step %9 {
        %195 = arith.addi %62, %194 : index
        %196 = arith.divsi %195, %8 : index
        %197 = arith.remsi %195, %8 : index
        %198 = arith.muli %196, %8 : index
        %199 = arith.minsi %198, %9 : index
        %200 = arith.muli %194, %12 : index
        %201 = vector.load %5[%200] : memref<256xf32>, vector<4xf32>
        %202 = arith.addi %200, %15 : index
        %203 = vector.load %5[%202] : memref<256xf32>, vector<4xf32>
        %204 = arith.addi %200, %43 : index
        %205 = vector.load %5[%204] : memref<256xf32>, vector<4xf32>
        %206 = arith.addi %200, %25 : index
        %207 = vector.load %5[%206] : memref<256xf32>, vector<4xf32>
        %208 = arith.addi %200, %45 : index
        %209 = vector.load %5[%208] : memref<256xf32>, vector<4xf32>
        %210 = arith.addi %200, %46 : index
        %211 = vector.load %5[%210] : memref<256xf32>, vector<4xf32>
        %212 = arith.addi %200, %26 : index
        %213 = vector.load %5[%212] : memref<256xf32>, vector<4xf32>
        %214 = arith.addi %200, %47 : index
        %215 = vector.load %5[%214] : memref<256xf32>, vector<4xf32>
        %216 = arith.addi %200, %48 : index
        %217 = vector.load %5[%216] : memref<256xf32>, vector<4xf32>
        %218 = arith.addi %200, %27 : index
        %219 = vector.load %5[%218] : memref<256xf32>, vector<4xf32>
        %220 = arith.addi %200, %49 : index
        %221 = vector.load %5[%220] : memref<256xf32>, vector<4xf32>
        %222 = arith.addi %200, %50 : index
        %223 = vector.load %5[%222] : memref<256xf32>, vector<4xf32>
        %224 = arith.addi %200, %28 : index
        %225 = vector.load %5[%224] : memref<256xf32>, vector<4xf32>
        %226 = arith.addi %200, %51 : index
        %227 = vector.load %5[%226] : memref<256xf32>, vector<4xf32>
        %228 = arith.addi %200, %52 : index
        %229 = vector.load %5[%228] : memref<256xf32>, vector<4xf32>
        %230 = arith.addi %200, %29 : index
        %231 = vector.load %5[%230] : memref<256xf32>, vector<4xf32>
        %232 = arith.addf %209, %217 : vector<4xf32>
        %233 = arith.subf %209, %217 : vector<4xf32>
        %234 = arith.addf %201, %232 : vector<4xf32>
        %235 = arith.subf %233, %225 : vector<4xf32>
        %236 = arith.addf %211, %219 : vector<4xf32>
        %237 = arith.subf %211, %219 : vector<4xf32>
        %238 = arith.addf %203, %236 : vector<4xf32>
        %239 = arith.subf %237, %227 : vector<4xf32>
        %240 = arith.addf %213, %221 : vector<4xf32>
        %241 = arith.subf %213, %221 : vector<4xf32>
        %242 = arith.addf %205, %240 : vector<4xf32>
        %243 = arith.subf %241, %229 : vector<4xf32>
        %244 = arith.addf %215, %223 : vector<4xf32>
        %245 = arith.subf %215, %223 : vector<4xf32>
        %246 = arith.addf %207, %244 : vector<4xf32>
        %247 = arith.subf %245, %231 : vector<4xf32>
        %248 = arith.addf %238, %242 : vector<4xf32>
        %249 = arith.subf %238, %242 : vector<4xf32>
        %250 = arith.addf %234, %248 : vector<4xf32>
        %251 = arith.subf %249, %246 : vector<4xf32>
        %252 = arith.addf %239, %243 : vector<4xf32>
        %253 = arith.subf %239, %243 : vector<4xf32>
        %254 = arith.addf %235, %252 : vector<4xf32>
        %255 = arith.subf %253, %247 : vector<4xf32>
        %256 = arith.cmpi sge, %199, %198 : index
        %257 = arith.muli %199, %53 : index
        %258 = arith.muli %197, %54 : index
        %259 = arith.addi %257, %258 : index
        %260 = arith.addi %259, %55 : index
        scf.if %256 {
          %261 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %262 = arith.addf %250, %261 : vector<4xf32>
          vector.store %262, %4[%259] : memref<60xf32>, vector<4xf32>
          %263 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %264 = arith.addf %251, %263 : vector<4xf32>
          vector.store %264, %4[%260] : memref<60xf32>, vector<4xf32>
        }
        %265 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %266 = arith.addf %254, %265 : vector<4xf32>
        %267 = arith.addi %259, %53 : index
        vector.store %266, %4[%267] : memref<60xf32>, vector<4xf32>
        %268 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %269 = arith.addf %255, %268 : vector<4xf32>
        %270 = arith.addi %259, %56 : index
        vector.store %269, %4[%270] : memref<60xf32>, vector<4xf32>
      }
      scf.for %271 = %7 to %15 step %9 {
        %272 = arith.muli %271, %42 : index
        %273 = arith.muli %271, %25 : index
        %274, %275 = scf.for %276 = %7 to %8 step %9 iter_args(%277 = %41, %278 = %41) -> (vector<4xf32>, vector<4xf32>) {
          %279 = arith.muli %276, %8 : index
          %280 = arith.addi %272, %279 : index
          %281 = arith.addi %280, %57 : index
          tile.prefetch %2[%281] : memref<256xf32>
          %282 = arith.addi %273, %276 : index
          %283 = memref.load %6[%282] : memref<768xf32>
          %284 = vector.broadcast %283 : f32 to vector<4xf32>
          %285 = arith.muli %276, %12 : index
          %286 = arith.addi %272, %285 : index
          %287 = arith.addi %286, %48 : index
          %288 = vector.load %2[%287] : memref<256xf32>, vector<4xf32>
          %289 = vector.fma %284, %288, %277 : vector<4xf32>
          %290 = arith.addi %282, %15 : index
          %291 = memref.load %6[%290] : memref<768xf32>
          %292 = vector.broadcast %291 : f32 to vector<4xf32>
          %293 = vector.fma %292, %288, %278 : vector<4xf32>
          scf.yield %289, %293 : vector<4xf32>, vector<4xf32>
        }
        %294 = arith.muli %271, %15 : index
        vector.store %274, %5[%294] : memref<256xf32>, vector<4xf32>
        %295 = arith.addi %294, %12 : index
        vector.store %275, %5[%295] : memref<256xf32>, vector<4xf32>
        %296 = scf.for %297 = %7 to %8 step %9 iter_args(%298 = %41) -> (vector<4xf32>) {
          %299 = arith.muli %297, %8 : index
          %300 = arith.addi %272, %299 : index
          %301 = arith.addi %300, %58 : index
          tile.prefetch %2[%301] : memref<256xf32>
          %302 = arith.addi %273, %297 : index
          %303 = arith.addi %302, %43 : index
          %304 = memref.load %6[%303] : memref<768xf32>
          %305 = vector.broadcast %304 : f32 to vector<4xf32>
          %306 = arith.muli %297, %12 : index
          %307 = arith.addi %272, %306 : index
          %308 = arith.addi %307, %48 : index
          %309 = vector.load %2[%308] : memref<256xf32>, vector<4xf32>
          %310 = vector.fma %305, %309, %298 : vector<4xf32>
          scf.yield %310 : vector<4xf32>
        }
        %311 = arith.addi %294, %42 : index
        vector.store %296, %5[%311] : memref<256xf32>, vector<4xf32>
      }
      scf.for %312 = %7 to %193 step %9 {
        %313 = arith.addi %62, %312 : index
        %314 = arith.divsi %313, %8 : index
        %315 = arith.remsi %313, %8 : index
        %316 = arith.muli %314, %8 : index
        %317 = arith.minsi %316, %9 : index
        %318 = arith.muli %312, %12 : index
        %319 = vector.load %5[%318] : memref<256xf32>, vector<4xf32>
        %320 = arith.addi %318, %15 : index
        %321 = vector.load %5[%320] : memref<256xf32>, vector<4xf32>
        %322 = arith.addi %318, %43 : index
        %323 = vector.load %5[%322] : memref<256xf32>, vector<4xf32>
        %324 = arith.addi %318, %25 : index
        %325 = vector.load %5[%324] : memref<256xf32>, vector<4xf32>
        %326 = arith.addi %318, %45 : index
        %327 = vector.load %5[%326] : memref<256xf32>, vector<4xf32>
        %328 = arith.addi %318, %46 : index
        %329 = vector.load %5[%328] : memref<256xf32>, vector<4xf32>
        %330 = arith.addi %318, %26 : index
        %331 = vector.load %5[%330] : memref<256xf32>, vector<4xf32>
        %332 = arith.addi %318, %47 : index
        %333 = vector.load %5[%332] : memref<256xf32>, vector<4xf32>
        %334 = arith.addi %318, %48 : index
        %335 = vector.load %5[%334] : memref<256xf32>, vector<4xf32>
        %336 = arith.addi %318, %27 : index
        %337 = vector.load %5[%336] : memref<256xf32>, vector<4xf32>
        %338 = arith.addi %318, %49 : index
        %339 = vector.load %5[%338] : memref<256xf32>, vector<4xf32>
        %340 = arith.addi %318, %50 : index
        %341 = vector.load %5[%340] : memref<256xf32>, vector<4xf32>
        %342 = arith.addi %318, %28 : index
        %343 = vector.load %5[%342] : memref<256xf32>, vector<4xf32>
        %344 = arith.addi %318, %51 : index
        %345 = vector.load %5[%344] : memref<256xf32>, vector<4xf32>
        %346 = arith.addi %318, %52 : index
        %347 = vector.load %5[%346] : memref<256xf32>, vector<4xf32>
        %348 = arith.addi %318, %29 : index
        %349 = vector.load %5[%348] : memref<256xf32>, vector<4xf32>
        %350 = arith.addf %327, %335 : vector<4xf32>
        %351 = arith.subf %327, %335 : vector<4xf32>
        %352 = arith.addf %319, %350 : vector<4xf32>
        %353 = arith.subf %351, %343 : vector<4xf32>
        %354 = arith.addf %329, %337 : vector<4xf32>
        %355 = arith.subf %329, %337 : vector<4xf32>
        %356 = arith.addf %321, %354 : vector<4xf32>
        %357 = arith.subf %355, %345 : vector<4xf32>
        %358 = arith.addf %331, %339 : vector<4xf32>
        %359 = arith.subf %331, %339 : vector<4xf32>
        %360 = arith.addf %323, %358 : vector<4xf32>
        %361 = arith.subf %359, %347 : vector<4xf32>
        %362 = arith.addf %333, %341 : vector<4xf32>
        %363 = arith.subf %333, %341 : vector<4xf32>
        %364 = arith.addf %325, %362 : vector<4xf32>
        %365 = arith.subf %363, %349 : vector<4xf32>
        %366 = arith.addf %356, %360 : vector<4xf32>
        %367 = arith.subf %356, %360 : vector<4xf32>
        %368 = arith.addf %352, %366 : vector<4xf32>
        %369 = arith.subf %367, %364 : vector<4xf32>
        %370 = arith.addf %357, %361 : vector<4xf32>
        %371 = arith.subf %357, %361 : vector<4xf32>
        %372 = arith.addf %353, %370 : vector<4xf32>
        %373 = arith.subf %371, %365 : vector<4xf32>
        %374 = arith.cmpi sge, %317, %316 : index
        %375 = arith.muli %317, %53 : index
        %376 = arith.muli %315, %54 : index
        %377 = arith.addi %375, %376 : index
        %378 = arith.addi %377, %12 : index
        %379 = arith.addi %377, %59 : index
        scf.if %374 {
          %380 = vector.extract %368[0] : f32 from vector<4xf32>
          %381 = memref.load %3[%12] : memref<5xf32>
          %382 = arith.addf %380, %381 : f32
          memref.store %382, %4[%378] : memref<60xf32>
          %383 = vector.extract %369[0] : f32 from vector<4xf32>
          %384 = memref.load %3[%12] : memref<5xf32>
          %385 = arith.addf %383, %384 : f32
          memref.store %385, %4[%379] : memref<60xf32>
        }
        %386 = vector.extract %372[0] : f32 from vector<4xf32>
        %387 = memref.load %3[%12] : memref<5xf32>
        %388 = arith.addf %386, %387 : f32
        %389 = arith.addi %377, %17 : index
        memref.store %388, %4[%389] : memref<60xf32>
        %390 = vector.extract %373[0] : f32 from vector<4xf32>
        %391 = memref.load %3[%12] : memref<5xf32>
        %392 = arith.addf %390, %391 : f32
        %393 = arith.addi %377, %60 : index
        memref.store %392, %4[%393] : memref<60xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.launch @move_256_f32_0 chunks 1 : i64 inplace [](%u) : (tensor<16x2x5xf32>) -> tensor<16x2x5xf32, #layout>
    %y = tile.launch @addf_subf_fma_60_f32_0 chunks 1 : i64 inplace [](%x, %p, %bias) : (tensor<1x5x6x2xf32>, tensor<16x2x5xf32, #layout>, tensor<5xf32>) -> tensor<1x3x4x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3x4x5xf32>
  }
}
