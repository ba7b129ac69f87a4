// Winograd tiles of 2x2 results: the last tiles end with the image, and the last panel is partial.
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
    %40 = memref.alloca() : memref<8xf32>
    %41 = arith.constant 0.000000e+00 : f32
    %42 = vector.broadcast %41 : f32 to vector<4xf32>
    %43 = arith.constant 8 : index
    %44 = memref.alloca() : memref<4xf32>
    %45 = arith.constant 32 : index
    %46 = arith.constant -3 : index
    %47 = arith.constant 64 : index
    %48 = arith.constant 80 : index
    %49 = arith.constant 112 : index
    %50 = arith.constant 128 : index
    %51 = arith.constant 160 : index
    %52 = arith.constant 176 : index
    %53 = arith.constant 208 : index
    %54 = arith.constant 224 : index
    %55 = arith.constant 20 : index
    %56 = arith.constant 10 : index
    %57 = arith.constant 5 : index
    %58 = arith.constant 25 : index
    %59 = memref.alloca() : memref<8xf32>
    %60 = memref.alloca() : memref<4xf32>
    %61 = arith.constant 9 : index
    %62 = arith.constant 29 : index
    scf.for %63 = %7 to %8 step %9 {
      %64 = arith.muli %63, %10 : index
      scf.for %65 = %7 to %10 step %9 {
        %66 = arith.addi %64, %65 : index
        %67 = arith.minsi %66, %10 : index
        %68 = arith.divsi %67, %8 : index
        %69 = arith.remsi %67, %8 : index
        %70 = arith.muli %68, %8 : index
        %71 = arith.minsi %70, %9 : index
        %72 = arith.muli %71, %11 : index
        %73 = arith.muli %69, %12 : index
        %74 = arith.addi %72, %73 : index
        %75 = vector.load %1[%74] : memref<60xf32>, vector<2xf32>
        %76 = arith.addi %74, %8 : index
        %77 = vector.load %1[%76] : memref<60xf32>, vector<2xf32>
        %78 = arith.addi %74, %12 : index
        %79 = vector.load %1[%78] : memref<60xf32>, vector<2xf32>
        %80 = arith.addi %74, %13 : index
        %81 = vector.load %1[%80] : memref<60xf32>, vector<2xf32>
        %82 = arith.addi %74, %11 : index
        %83 = vector.load %1[%82] : memref<60xf32>, vector<2xf32>
        %84 = arith.addi %74, %14 : index
        %85 = vector.load %1[%84] : memref<60xf32>, vector<2xf32>
        %86 = arith.addi %74, %15 : index
        %87 = vector.load %1[%86] : memref<60xf32>, vector<2xf32>
        %88 = arith.addi %74, %16 : index
        %89 = vector.load %1[%88] : memref<60xf32>, vector<2xf32>
        %90 = arith.addi %74, %17 : index
        %91 = vector.load %1[%90] : memref<60xf32>, vector<2xf32>
        %92 = arith.addi %74, %18 : index
        %93 = vector.load %1[%92] : memref<60xf32>, vector<2xf32>
        %94 = arith.addi %74, %19 : index
        %95 = vector.load %1[%94] : memref<60xf32>, vector<2xf32>
        %96 = arith.addi %74, %20 : index
        %97 = vector.load %1[%96] : memref<60xf32>, vector<2xf32>
        %98 = arith.addi %74, %21 : index
        %99 = vector.load %1[%98] : memref<60xf32>, vector<2xf32>
        %100 = arith.addi %74, %22 : index
        %101 = vector.load %1[%100] : memref<60xf32>, vector<2xf32>
        %102 = arith.addi %74, %23 : index
        %103 = vector.load %1[%102] : memref<60xf32>, vector<2xf32>
        %104 = arith.addi %74, %24 : index
        %105 = vector.load %1[%104] : memref<60xf32>, vector<2xf32>
        %106 = arith.addf %91, %83 : vector<2xf32>
        %107 = arith.subf %91, %83 : vector<2xf32>
        %108 = arith.subf %75, %91 : vector<2xf32>
        %109 = arith.subf %83, %99 : vector<2xf32>
        %110 = arith.addf %93, %85 : vector<2xf32>
        %111 = arith.subf %93, %85 : vector<2xf32>
        %112 = arith.subf %77, %93 : vector<2xf32>
        %113 = arith.subf %85, %101 : vector<2xf32>
        %114 = arith.addf %95, %87 : vector<2xf32>
        %115 = arith.subf %95, %87 : vector<2xf32>
        %116 = arith.subf %79, %95 : vector<2xf32>
        %117 = arith.subf %87, %103 : vector<2xf32>
        %118 = arith.addf %97, %89 : vector<2xf32>
        %119 = arith.subf %97, %89 : vector<2xf32>
        %120 = arith.subf %81, %97 : vector<2xf32>
        %121 = arith.subf %89, %105 : vector<2xf32>
        %122 = arith.addf %116, %112 : vector<2xf32>
        %123 = arith.subf %116, %112 : vector<2xf32>
        %124 = arith.subf %108, %116 : vector<2xf32>
        %125 = arith.subf %112, %120 : vector<2xf32>
        %126 = arith.addf %114, %110 : vector<2xf32>
        %127 = arith.subf %114, %110 : vector<2xf32>
        %128 = arith.subf %106, %114 : vector<2xf32>
        %129 = arith.subf %110, %118 : vector<2xf32>
        %130 = arith.addf %115, %111 : vector<2xf32>
        %131 = arith.subf %115, %111 : vector<2xf32>
        %132 = arith.subf %107, %115 : vector<2xf32>
        %133 = arith.subf %111, %119 : vector<2xf32>
        %134 = arith.addf %117, %113 : vector<2xf32>
        %135 = arith.subf %117, %113 : vector<2xf32>
        %136 = arith.subf %109, %117 : vector<2xf32>
        %137 = arith.subf %113, %121 : vector<2xf32>
        %138 = arith.muli %65, %15 : index
        vector.store %124, %6[%138] : memref<768xf32>, vector<2xf32>
        %139 = arith.addi %138, %25 : index
        vector.store %122, %6[%139] : memref<768xf32>, vector<2xf32>
        %140 = arith.addi %138, %26 : index
        vector.store %123, %6[%140] : memref<768xf32>, vector<2xf32>
        %141 = arith.addi %138, %27 : index
        vector.store %125, %6[%141] : memref<768xf32>, vector<2xf32>
        %142 = arith.addi %138, %28 : index
        vector.store %128, %6[%142] : memref<768xf32>, vector<2xf32>
        %143 = arith.addi %138, %29 : index
        vector.store %126, %6[%143] : memref<768xf32>, vector<2xf32>
        %144 = arith.addi %138, %30 : index
        vector.store %127, %6[%144] : memref<768xf32>, vector<2xf32>
        %145 = arith.addi %138, %31 : index
        vector.store %129, %6[%145] : memref<768xf32>, vector<2xf32>
        %146 = arith.addi %138, %32 : index
        vector.store %132, %6[%146] : memref<768xf32>, vector<2xf32>
        %147 = arith.addi %138, %33 : index
        vector.store %130, %6[%147] : memref<768xf32>, vector<2xf32>
        %148 = arith.addi %138, %34 : index
        vector.store %131, %6[%148] : memref<768xf32>, vector<2xf32>
        %149 = arith.addi %138, %35 : index
        vector.store %133, %6[%149] : memref<768xf32>, vector<2xf32>
        %150 = arith.addi %138, %36 : index
        vector.store %136, %6[%150] : memref<768xf32>, vector<2xf32>
        %151 = arith.addi %138, %37 : index
        vector.store %134, %6[%151] : memref<768xf32>, vector<2xf32>
        %152 = arith.addi %138, %38 : index
        vector.store %135, %6[%152] : memref<768xf32>, vector<2xf32>
        %153 = arith.addi %138, %39 : index
        vector.store %137, %6[%153] : memref<768xf32>, vector<2xf32>
      }
      scf.for %154 = %7 to %15 step %9 {
        scf.for %155 = %7 to %8 step %9 {
          %156 = arith.muli %155, %12 : index
          scf.for %157 = %7 to %12 step %12 {
            %158 = arith.addi %156, %157 : index
            vector.store %42, %40[%158] : memref<8xf32>, vector<4xf32>
          } {unroll}
        } {unroll}
        %159 = arith.muli %154, %25 : index
        %160 = arith.muli %154, %43 : index
        scf.for %161 = %7 to %8 step %9 {
          %162 = arith.addi %159, %161 : index
          %163 = arith.muli %161, %12 : index
          %164 = arith.addi %160, %163 : index
          scf.for %165 = %7 to %8 step %9 {
            %166 = arith.muli %165, %12 : index
            %167 = arith.muli %165, %15 : index
            %168 = arith.addi %162, %167 : index
            %169 = memref.load %6[%168] : memref<768xf32>
            %170 = vector.broadcast %169 : f32 to vector<4xf32>
            scf.for %171 = %7 to %12 step %12 {
              %172 = arith.addi %166, %171 : index
              %173 = vector.load %40[%172] : memref<8xf32>, vector<4xf32>
              %174 = arith.addi %164, %171 : index
              %175 = vector.load %2[%174] : memref<256xf32>, vector<4xf32>
              %176 = vector.fma %170, %175, %173 : vector<4xf32>
              vector.store %176, %40[%172] : memref<8xf32>, vector<4xf32>
            } {unroll}
          } {unroll}
        } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1>}
        %177 = arith.muli %154, %15 : index
        scf.for %178 = %7 to %8 step %9 {
          %179 = arith.muli %178, %12 : index
          %180 = arith.addi %177, %179 : index
          scf.for %181 = %7 to %12 step %12 {
            %182 = arith.addi %179, %181 : index
            %183 = vector.load %40[%182] : memref<8xf32>, vector<4xf32>
            %184 = arith.addi %180, %181 : index
            vector.store %183, %5[%184] : memref<256xf32>, vector<4xf32>
          } {unroll}
        } {unroll}
        scf.for %185 = %7 to %12 step %12 {
          vector.store %42, %44[%185] : memref<4xf32>, vector<4xf32>
        } {unroll}
        scf.for %186 = %7 to %8 step %9 {
          %187 = arith.addi %159, %186 : index
          %188 = arith.addi %187, %45 : index
          %189 = memref.load %6[%188] : memref<768xf32>
          %190 = vector.broadcast %189 : f32 to vector<4xf32>
          %191 = arith.muli %186, %12 : index
          %192 = arith.addi %160, %191 : index
          scf.for %193 = %7 to %12 step %12 {
            %194 = vector.load %44[%193] : memref<4xf32>, vector<4xf32>
            %195 = arith.addi %192, %193 : index
            %196 = vector.load %2[%195] : memref<256xf32>, vector<4xf32>
            %197 = vector.fma %190, %196, %194 : vector<4xf32>
            vector.store %197, %44[%193] : memref<4xf32>, vector<4xf32>
          } {unroll}
        } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1, first 4>}
        scf.for %198 = %7 to %12 step %12 {
          %199 = vector.load %44[%198] : memref<4xf32>, vector<4xf32>
          %200 = arith.addi %177, %198 : index
          %201 = arith.addi %200, %43 : index
          vector.store %199, %5[%201] : memref<256xf32>, vector<4xf32>
        } {unroll}
      }
      %202 = arith.muli %63, %46 : index
      %203 = arith.addi %202, %12 : index
      %204 = arith.minsi %203, %10 : index
      scf.for %205 = %7 to %204 step %9 {
        %206 = arith.addi %64, %205 : index
        %207 = arith.divsi %206, %8 : index
        %208 = arith.remsi %206, %8 : index
        %209 = arith.muli %207, %8 : index
        %210 = arith.minsi %209, %9 : index
        %211 = arith.muli %205, %12 : index
        %212 = vector.load %5[%211] : memref<256xf32>, vector<4xf32>
        %213 = arith.addi %211, %15 : index
        %214 = vector.load %5[%213] : memref<256xf32>, vector<4xf32>
        %215 = arith.addi %211, %45 : index
        %216 = vector.load %5[%215] : memref<256xf32>, vector<4xf32>
        %217 = arith.addi %211, %25 : index
        %218 = vector.load %5[%217] : memref<256xf32>, vector<4xf32>
        %219 = arith.addi %211, %47 : index
        %220 = vector.load %5[%219] : memref<256xf32>, vector<4xf32>
        %221 = arith.addi %211, %48 : index
        %222 = vector.load %5[%221] : memref<256xf32>, vector<4xf32>
        %223 = arith.addi %211, %26 : index
        %224 = vector.load %5[%223] : memref<256xf32>, vector<4xf32>
        %225 = arith.addi %211, %49 : index
        %226 = vector.load %5[%225] : memref<256xf32>, vector<4xf32>
        %227 = arith.addi %211, %50 : index
        %228 = vector.load %5[%227] : memref<256xf32>, vector<4xf32>
        %229 = arith.addi %211, %27 : index
        %230 = vector.load %5[%229] : memref<256xf32>, vector<4xf32>
        %231 = arith.addi %211, %51 : index
        %232 = vector.load %5[%231] : memref<256xf32>, vector<4xf32>
        %233 = arith.addi %211, %52 : index
        %234 = vector.load %5[%233] : memref<256xf32>, vector<4xf32>
        %235 = arith.addi %211, %28 : index
        %236 = vector.load %5[%235] : memref<256xf32>, vector<4xf32>
        %237 = arith.addi %211, %53 : index
        %238 = vector.load %5[%237] : memref<256xf32>, vector<4xf32>
        %239 = arith.addi %211, %54 : index
        %240 = vector.load %5[%239] : memref<256xf32>, vector<4xf32>
        %241 = arith.addi %211, %29 : index
        %242 = vector.load %5[%241] : memref<256xf32>, vector<4xf32>
        %243 = arith.addf %220, %228 : vector<4xf32>
        %244 = arith.subf %220, %228 : vector<4xf32>
        %245 = arith.addf %212, %243 : vector<4xf32>
        %246 = arith.subf %244, %236 : vector<4xf32>
        %247 = arith.addf %222, %230 : vector<4xf32>
        %248 = arith.subf %222, %230 : vector<4xf32>
        %249 = arith.addf %214, %247 : vector<4xf32>
        %250 = arith.subf %248, %238 : vector<4xf32>
        %251 = arith.addf %224, %232 : vector<4xf32>
        %252 = arith.subf %224, %232 : vector<4xf32>
        %253 = arith.addf %216, %251 : vector<4xf32>
        %254 = arith.subf %252, %240 : vector<4xf32>
        %255 = arith.addf %226, %234 : vector<4xf32>
        %256 = arith.subf %226, %234 : vector<4xf32>
        %257 = arith.addf %218, %255 : vector<4xf32>
        %258 = arith.subf %256, %242 : vector<4xf32>
        %259 = arith.addf %249, %253 : vector<4xf32>
        %260 = arith.subf %249, %253 : vector<4xf32>
        %261 = arith.addf %245, %259 : vector<4xf32>
        %262 = arith.subf %260, %257 : vector<4xf32>
        %263 = arith.addf %250, %254 : vector<4xf32>
        %264 = arith.subf %250, %254 : vector<4xf32>
        %265 = arith.addf %246, %263 : vector<4xf32>
        %266 = arith.subf %264, %258 : vector<4xf32>
        %267 = arith.cmpi sge, %210, %209 : index
        %268 = arith.muli %210, %55 : index
        %269 = arith.muli %208, %56 : index
        %270 = arith.addi %268, %269 : index
        %271 = arith.addi %270, %57 : index
        scf.if %267 {
          %272 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %273 = arith.addf %261, %272 : vector<4xf32>
          vector.store %273, %4[%270] : memref<60xf32>, vector<4xf32>
          %274 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %275 = arith.addf %262, %274 : vector<4xf32>
          vector.store %275, %4[%271] : memref<60xf32>, vector<4xf32>
        }
        %276 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %277 = arith.addf %265, %276 : vector<4xf32>
        %278 = arith.addi %270, %55 : index
        vector.store %277, %4[%278] : memref<60xf32>, vector<4xf32>
        %279 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %280 = arith.addf %266, %279 : vector<4xf32>
        %281 = arith.addi %270, %58 : index
        vector.store %280, %4[%281] : memref<60xf32>, vector<4xf32>
      }
      scf.for %282 = %7 to %15 step %9 {
        scf.for %283 = %7 to %8 step %9 {
          %284 = arith.muli %283, %12 : index
          scf.for %285 = %7 to %12 step %12 {
            %286 = arith.addi %284, %285 : index
            vector.store %42, %59[%286] : memref<8xf32>, vector<4xf32>
          } {unroll}
        } {unroll}
        %287 = arith.muli %282, %25 : index
        %288 = arith.muli %282, %43 : index
        scf.for %289 = %7 to %8 step %9 {
          %290 = arith.addi %287, %289 : index
          %291 = arith.muli %289, %12 : index
          %292 = arith.addi %288, %291 : index
          scf.for %293 = %7 to %8 step %9 {
            %294 = arith.muli %293, %12 : index
            %295 = arith.muli %293, %15 : index
            %296 = arith.addi %290, %295 : index
            %297 = memref.load %6[%296] : memref<768xf32>
            %298 = vector.broadcast %297 : f32 to vector<4xf32>
            scf.for %299 = %7 to %12 step %12 {
              %300 = arith.addi %294, %299 : index
              %301 = vector.load %59[%300] : memref<8xf32>, vector<4xf32>
              %302 = arith.addi %292, %299 : index
              %303 = arith.addi %302, %50 : index
              %304 = vector.load %2[%303] : memref<256xf32>, vector<4xf32>
              %305 = vector.fma %298, %304, %301 : vector<4xf32>
              vector.store %305, %59[%300] : memref<8xf32>, vector<4xf32>
            } {unroll}
          } {unroll}
        } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1>}
        %306 = arith.muli %282, %15 : index
        scf.for %307 = %7 to %8 step %9 {
          %308 = arith.muli %307, %12 : index
          %309 = arith.addi %306, %308 : index
          scf.for %310 = %7 to %12 step %12 {
            %311 = arith.addi %308, %310 : index
            %312 = vector.load %59[%311] : memref<8xf32>, vector<4xf32>
            %313 = arith.addi %309, %310 : index
            vector.store %312, %5[%313] : memref<256xf32>, vector<4xf32>
          } {unroll}
        } {unroll}
        scf.for %314 = %7 to %12 step %12 {
          vector.store %42, %60[%314] : memref<4xf32>, vector<4xf32>
        } {unroll}
        scf.for %315 = %7 to %8 step %9 {
          %316 = arith.addi %287, %315 : index
          %317 = arith.addi %316, %45 : index
          %318 = memref.load %6[%317] : memref<768xf32>
          %319 = vector.broadcast %318 : f32 to vector<4xf32>
          %320 = arith.muli %315, %12 : index
          %321 = arith.addi %288, %320 : index
          scf.for %322 = %7 to %12 step %12 {
            %323 = vector.load %60[%322] : memref<4xf32>, vector<4xf32>
            %324 = arith.addi %321, %322 : index
            %325 = arith.addi %324, %50 : index
            %326 = vector.load %2[%325] : memref<256xf32>, vector<4xf32>
            %327 = vector.fma %319, %326, %323 : vector<4xf32>
            vector.store %327, %60[%322] : memref<4xf32>, vector<4xf32>
          } {unroll}
        } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1, first 4>}
        scf.for %328 = %7 to %12 step %12 {
          %329 = vector.load %60[%328] : memref<4xf32>, vector<4xf32>
          %330 = arith.addi %306, %328 : index
          %331 = arith.addi %330, %43 : index
          vector.store %329, %5[%331] : memref<256xf32>, vector<4xf32>
        } {unroll}
      }
      scf.for %332 = %7 to %204 step %9 {
        %333 = arith.addi %64, %332 : index
        %334 = arith.divsi %333, %8 : index
        %335 = arith.remsi %333, %8 : index
        %336 = arith.muli %334, %8 : index
        %337 = arith.minsi %336, %9 : index
        %338 = arith.muli %332, %12 : index
        %339 = vector.load %5[%338] : memref<256xf32>, vector<4xf32>
        %340 = arith.addi %338, %15 : index
        %341 = vector.load %5[%340] : memref<256xf32>, vector<4xf32>
        %342 = arith.addi %338, %45 : index
        %343 = vector.load %5[%342] : memref<256xf32>, vector<4xf32>
        %344 = arith.addi %338, %25 : index
        %345 = vector.load %5[%344] : memref<256xf32>, vector<4xf32>
        %346 = arith.addi %338, %47 : index
        %347 = vector.load %5[%346] : memref<256xf32>, vector<4xf32>
        %348 = arith.addi %338, %48 : index
        %349 = vector.load %5[%348] : memref<256xf32>, vector<4xf32>
        %350 = arith.addi %338, %26 : index
        %351 = vector.load %5[%350] : memref<256xf32>, vector<4xf32>
        %352 = arith.addi %338, %49 : index
        %353 = vector.load %5[%352] : memref<256xf32>, vector<4xf32>
        %354 = arith.addi %338, %50 : index
        %355 = vector.load %5[%354] : memref<256xf32>, vector<4xf32>
        %356 = arith.addi %338, %27 : index
        %357 = vector.load %5[%356] : memref<256xf32>, vector<4xf32>
        %358 = arith.addi %338, %51 : index
        %359 = vector.load %5[%358] : memref<256xf32>, vector<4xf32>
        %360 = arith.addi %338, %52 : index
        %361 = vector.load %5[%360] : memref<256xf32>, vector<4xf32>
        %362 = arith.addi %338, %28 : index
        %363 = vector.load %5[%362] : memref<256xf32>, vector<4xf32>
        %364 = arith.addi %338, %53 : index
        %365 = vector.load %5[%364] : memref<256xf32>, vector<4xf32>
        %366 = arith.addi %338, %54 : index
        %367 = vector.load %5[%366] : memref<256xf32>, vector<4xf32>
        %368 = arith.addi %338, %29 : index
        %369 = vector.load %5[%368] : memref<256xf32>, vector<4xf32>
        %370 = arith.addf %347, %355 : vector<4xf32>
        %371 = arith.subf %347, %355 : vector<4xf32>
        %372 = arith.addf %339, %370 : vector<4xf32>
        %373 = arith.subf %371, %363 : vector<4xf32>
        %374 = arith.addf %349, %357 : vector<4xf32>
        %375 = arith.subf %349, %357 : vector<4xf32>
        %376 = arith.addf %341, %374 : vector<4xf32>
        %377 = arith.subf %375, %365 : vector<4xf32>
        %378 = arith.addf %351, %359 : vector<4xf32>
        %379 = arith.subf %351, %359 : vector<4xf32>
        %380 = arith.addf %343, %378 : vector<4xf32>
        %381 = arith.subf %379, %367 : vector<4xf32>
        %382 = arith.addf %353, %361 : vector<4xf32>
        %383 = arith.subf %353, %361 : vector<4xf32>
        %384 = arith.addf %345, %382 : vector<4xf32>
        %385 = arith.subf %383, %369 : vector<4xf32>
        %386 = arith.addf %376, %380 : vector<4xf32>
        %387 = arith.subf %376, %380 : vector<4xf32>
        %388 = arith.addf %372, %386 : vector<4xf32>
        %389 = arith.subf %387, %384 : vector<4xf32>
        %390 = arith.addf %377, %381 : vector<4xf32>
        %391 = arith.subf %377, %381 : vector<4xf32>
        %392 = arith.addf %373, %390 : vector<4xf32>
        %393 = arith.subf %391, %385 : vector<4xf32>
        %394 = arith.cmpi sge, %337, %336 : index
        %395 = arith.muli %337, %55 : index
        %396 = arith.muli %335, %56 : index
        %397 = arith.addi %395, %396 : index
        %398 = arith.addi %397, %12 : index
        %399 = arith.addi %397, %61 : index
        scf.if %394 {
          %400 = vector.extract %388[0] : f32 from vector<4xf32>
          %401 = memref.load %3[%12] : memref<5xf32>
          %402 = arith.addf %400, %401 : f32
          memref.store %402, %4[%398] : memref<60xf32>
          %403 = vector.extract %389[0] : f32 from vector<4xf32>
          %404 = memref.load %3[%12] : memref<5xf32>
          %405 = arith.addf %403, %404 : f32
          memref.store %405, %4[%399] : memref<60xf32>
        }
        %406 = vector.extract %392[0] : f32 from vector<4xf32>
        %407 = memref.load %3[%12] : memref<5xf32>
        %408 = arith.addf %406, %407 : f32
        %409 = arith.addi %397, %17 : index
        memref.store %408, %4[%409] : memref<60xf32>
        %410 = vector.extract %393[0] : f32 from vector<4xf32>
        %411 = memref.load %3[%12] : memref<5xf32>
        %412 = arith.addf %410, %411 : f32
        %413 = arith.addi %397, %62 : index
        memref.store %412, %4[%413] : memref<60xf32>
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
