import{a as tt,b as at,c as rt}from"./chunk-EWW6NWZM.js";import{a as Ve,b as Ge,c as Ze}from"./chunk-R72F5RO6.js";import{$ as U,B as Re,C as he,D as Ne,F as Be,G as He,H as xe,I as Oe,J as t,L as D,M as de,N as ae,P as p,Q as j,R as qe,S as M,T,U as re,V as Fe,W as Le,X as ve,Y as Ue,a as Ce,aa as pe,b as v,ba as Q,c as Ee,ca as Y,d as N,da as Ke,ea as We,f as ne,fa as Xe,g as O,ga as ie,h as Ae,ha as Z,i as a,ia as R,j as F,ja as k,k as E,ka as B,l as je,la as H,m as L,n as se,na as A,o as le,p as Ie,pa as P,q as ue,r as Pe,ra as Je,s as De,sa as Qe,t as Te,ta as Ye,u as G,y,ya as ce,za as et}from"./chunk-7F6BIAIT.js";function $e(e){let r={pages:null,failed:!1,pending:null},n=()=>(r.pending??=e().then(o=>{r.pages=o},()=>{r.pending=null,r.failed=!0}),r.pending);function l({page:o,...s}){let[,d]=Ee(u=>u+1,0),i=()=>{r.failed=!1,d(),n().then(d)};if(N(()=>{r.pages||i()},[]),r.pages)return a`<${r.pages[o]} ...${s} />`;let c=()=>Re()==="live"?location.reload():i();return r.failed?a`<${B} tone="bad" title=${t("load.page")} hint=${t("load.page_hint")} action=${a`<button class="btn" onClick=${c}>${t("load.retry")}</button>`} />`:a`<div class="skeleton" style=${{height:"500px"}} aria-busy="true"><span class="sr">${t("load.wait")}</span></div>`}return{load:n,Page:l}}var be=9,It=150,Pt=/^(?=\S*\d)\S{4,}$/,Dt=e=>{let[r,...n]=e.split("/");return`servers/${encodeURIComponent(r)}${n.length?`?part=${encodeURIComponent(n.join("/"))}`:""}`};function Tt(e,r){let n=-1,l=0;for(let o of e.toLowerCase()){let s=r.toLowerCase().indexOf(o,n+1);if(s<0)return null;l+=n<0?s:(s-n-1)*3,n=s}return l}function it({onClose:e,commands:r}){let n=ne(),l=F(e),[o,s]=v(""),[d,i]=v(0),[c,u]=v([]),$=y(se).data?.servers.name??[],b=y("incidents").data?.items??[];N(()=>{n.current.focus()},[]);let w=O(()=>[...r,...b.map(f=>({group:"pal.incident",text:`${f.id}  ${R(f)}`,run:()=>T(`incidents/${f.id}`)})),...$.map(f=>({group:"pal.server",text:f,run:()=>T(`servers/${f}`)}))],[r,b,$]);N(()=>{let f=o.trim(),_=!0;u([]);let V=Pt.test(f)&&setTimeout(()=>le(`resources?limit=${be}&find=${encodeURIComponent(f)}`).then(({items:h})=>{_&&u(h.map(x=>x.name))},()=>{}),It);return()=>{_=!1,clearTimeout(V)}},[o]);let g=O(()=>{if(!o)return w.slice(0,be);let f=[];for(let h of w){let x=Tt(o,h.text);x!==null&&f.push([x,h])}let _=f.sort((h,x)=>h[0]-x[0]).map(([,h])=>h);return[...c.filter(h=>!_.some(x=>x.text===h)).map(h=>({group:"pal.resource",text:h,run:()=>T(Dt(h))})),..._].slice(0,be)},[w,o,c]),z=f=>{e(),f?.run()},C=f=>i(_=>(_+f+g.length)%Math.max(1,g.length));j({modal:!0,Escape:e});let m=f=>{let _={ArrowDown:()=>C(1),ArrowUp:()=>C(-1),Enter:()=>z(g[d])};_[f.key]&&!f.isComposing&&(f.preventDefault(),_[f.key]())};return a`<dialog class="palette" ref=${l} onClick=${f=>f.target===l.current&&e()} aria-label=${t("shell.find")}>
    <input ref=${n} value=${o} placeholder=${t("pal.placeholder")} aria-label=${t("pal.placeholder")} role="combobox" aria-expanded="true" aria-controls="pal-list" aria-activedescendant=${g.length?`pal-${d}`:void 0} onInput=${f=>{s(f.target.value),i(0)}} onKeyDown=${m} />
    <ul id="pal-list" role="listbox" aria-label=${t("shell.find")}>
      ${g.map((f,_)=>a`<li id=${`pal-${_}`} role="option" aria-selected=${_===d?"true":"false"} class=${E(_===d&&"on")} onMouseMove=${()=>i(_)} onClick=${()=>z(f)}><span>${f.text}</span><small>${f.keys?a`<kbd>${f.keys}</kbd>`:t(f.group)}</small></li>`)}
    </ul>
    ${g.length===0&&a`<p class="dim">${t("pal.none")}</p>`}
  </dialog>`}var Rt=30,ot=[1,2,5,10,15,30,60].map(e=>e*6e4);function nt({history:e}){let r=y("incidents").data?.items??[],n=Math.max(0,Math.min(e.alerts.length-Rt,e.alerts.findIndex(g=>g>0)-3)),l=e.alerts.slice(n),o=Date.parse(e.start)+n*e.step*1e3,s=l.length*e.step*1e3,d=l.reduce((g,z)=>g+z,0),i=g=>Math.sqrt(g)/Math.sqrt(Math.max(9,...l)),c=t("fleet.storm",{age:p.dur(s/1e3)}),u=e.incidents.filter(g=>Date.parse(g.time)>=o),$=ot.find(g=>s/g<=10)??ot.at(-1),b=Array.from({length:Math.floor((o+s)/$)-Math.ceil(o/$)+1},(g,z)=>(Math.ceil(o/$)+z)*$),w=new Map(r.map(g=>[g.id,g]));return a`<section class="storm" aria-label=${c}>
    <header><b>${c}</b><span>${t("fleet.storm_text",{alerts:d,incidents:u.length})}</span></header>
    <div class="storm-plot">
      <svg viewBox=${`0 0 ${l.length} 40`} preserveAspectRatio="none" aria-hidden="true">${l.map((g,z)=>g>0&&a`<rect x=${z+.1} width="0.8" y=${40-i(g)*40} height=${i(g)*40} />`)}</svg>
      ${u.map(g=>a`<a class=${`pin c-${P(w.get(g.id)?.severity)}`} style=${{left:`${(Date.parse(g.time)-o)/s*100}%`}} href=${M(`incidents/${g.id}`)} title=${R(w.get(g.id))} aria-label=${R(w.get(g.id))||g.id}></a>`)}
    </div>
    <div class="storm-axis" aria-hidden="true">${b.filter(g=>g-o>s/50&&o+s-g>s/50).map(g=>a`<i style=${{left:`${(g-o)/s*100}%`}}>${p.minute(g)}</i>`)}</div>
  </section>`}var st=["health","temp","power","load","risk","job"];function Nt({incident:e,action:r,now:n,selected:l}){let o=P(e.severity),s=ne();return N(()=>{l&&s.current.scrollIntoView({block:"nearest"})},[l]),a`<a ref=${s} class=${E("incident-row",l&&"selected")} href=${M(`incidents/${e.id}`)}>
    <${A} kind=${o} label=${D("severity",e.severity)} size=${14} />
    <div>
      <p class="what">${R(e)}</p>
      <p class="facts"><span class="mono">${e.root_cause.resource}</span><${Y} p=${e.root_cause.confidence} /><span class="num">${p.dur((n-Date.parse(e.opened))/1e3)}</span><span class="num">${t("inc.n_alerts",{n:e.alerts})}</span></p>
      ${r&&a`<p class="next c-warning"><${A} kind="waiting" token="warning" size=${11} />${Qe(r)}</p>`}
    </div>
  </a>`}function lt({summary:e,open:r,waiting:n}){let{gpus:l}=e,o=[[p.pct(l.total?l.healthy/l.total:null,1),"fleet.healthy"],[p.num(l.used),"fleet.used"],[p.num(l.free),"fleet.free"],[p.num(l.out),"fleet.out"],[e.power_kw===null?"–":e.power_kw>2e3?`${p.fixed(e.power_kw/1e3,1)} MW`:`${p.num(Math.round(e.power_kw))} kW`,"fleet.power"],[e.samples_per_second===null?"–":p.compact(e.samples_per_second),"fleet.ingest"]];return a`<header class="headline">
    <div><h1>${e.servers===0?t("fleet.unwatched"):r===0?t("fleet.calm"):a`${t("fleet.headline",{open:r})}${t("fleet.comma")}<a href=${M("actions")} class=${n?"c-warning":"dim"}>${t("fleet.waits",{n})}</a>`}</h1>
    <p class="dim">${e.simulated?`${t("shell.simulated")} · `:""}${t("fleet.sub",{servers:e.servers,gpus:l.total,racks:e.racks})}</p></div>
    <dl class="facts-row">${o.map(([s,d])=>a`<div><dd class="num">${s}</dd><dt>${t(d)}</dt></div>`)}</dl>
  </header>`}function dt({query:e}){let r=y(se),n=y("incidents").data?.items??[],l=y("actions?state=waiting&limit=100").data?.items??[],o=y("predictions?state=open").data,s=O(()=>tt(o?.items),[o]),d=Xe(o),i=L(1e3),[c,u]=v(-1),[$,b]=v(0),w=Ae(()=>b(h=>h+1),[]),g=st.includes(e.get("by"))?e.get("by"):"health",z=e.has("only"),C=e.has("table"),m=n.filter(h=>h.status==="open").sort((h,x)=>(P(x.severity)==="critical")-(P(h.severity)==="critical")||Date.parse(x.opened)-Date.parse(h.opened)),f=n.filter(h=>h.status==="repair"),_=[...m,...f];j({j:()=>u(h=>Math.min(_.length-1,h+1)),k:()=>u(h=>Math.max(0,h-1)),Enter:()=>c>=0&&document.activeElement.tagName!=="A"?T(`incidents/${_[c].id}`):!1});let V=(h,x)=>re({[h]:x?null:"1"});return a`<${H} of=${r} height=${600}>${h=>h.summary.servers===0?a`<${lt} summary=${h.summary} open=${0} waiting=${0} /><${k}><${B} title=${t("fleet.empty")} hint=${t("fleet.empty_hint")} action=${a`<pre class="command">auspex cmdb import topology.json${`
`}auspex run --demo</pre>`} /><//>`:a`
    <${lt} summary=${h.summary} open=${m.length} waiting=${l.length} />
    <div class="fleet-grid">
      <div class="column">
        <${k} title=${t("fleet.wrong")} id="wrong" aside=${a`<span class="dim num">${m.length}</span>`} flush>
          ${m.length===0&&a`<${B} title=${t("fleet.no_incident")} />`}
          ${m.map((x,te)=>a`<${Nt} incident=${x} now=${i} selected=${c===te} action=${l.find(me=>me.incident===x.id)} />`)}
          ${f.length>0&&a`<h3 class="sub">${t("fleet.repair")}</h3>`}
          ${f.map((x,te)=>a`<a class=${E("repair-row",c===m.length+te&&"selected")} href=${M(`incidents/${x.id}`)}><${A} kind="acting" token="action" label=${t("state.acting")} /><span>${R(x)}</span></a>`)}
        <//>
        <${k} title=${t("fleet.next")} id="next" aside=${a`<a href=${M("predictions")}>${t("all")}</a>`} flush>
          ${s.length===0&&a`<${B} title=${t("fleet.no_prediction")} />`}
          ${s.slice(0,4).map(x=>a`<a class="predict-row" href=${M(`servers/${x.server}${x.resource.startsWith(`${x.server}/`)?`?part=${x.resource.slice(x.server.length+1)}`:""}`)}><${A} kind="predicted" label=${t("state.predicted")} /><span class="mono">${x.resource}</span><span class="dim">${at(x)}</span><${Ke} from=${x.eta_p10} mid=${x.eta_p50} to=${x.eta_p90} now=${je.now()} horizon=${d} /><b class="num">${p.prob(x.probability)}</b></a>`)}
          ${s.length>0&&a`<div class="predict-row scale-row" aria-hidden="true"><i></i><i></i><i></i><${We} horizon=${d} /><i></i></div>`}
        <//>
      </div>
      <div class="column">
        <${k} title=${t("fleet.map")} id="map" class="map-panel" aside=${a`<button class=${E("btn small",z&&"on")} aria-pressed=${z?"true":"false"} onClick=${()=>V("only",z)}>${t("map.only")}</button><button class=${E("btn small",C&&"on")} aria-pressed=${C?"true":"false"} onClick=${()=>V("table",C)}>${t("map.table")}</button><${Q} label=${t("by.label")} value=${g} options=${st.map(x=>[x,t(`by.${x}`)])} onChange=${x=>re({by:x==="health"?null:x})} />`}>
          <div class="map-tools"><${Ge} picture=${h} by=${g} version=${$} /></div>
          ${C?a`<${Ze} picture=${h} only=${z} />`:a`<${Ve} picture=${h} by=${g} only=${z} height=${540} onStates=${w} />`}
        <//>
        <${nt} history=${h.history} now=${i} />
      </div>
    </div>`}<//>`}var I={w:122,h:46,gap:14},pt=178,ct=17;function Bt(e){let r=new Map(e.nodes.filter(n=>n.role==="cause").map(n=>[n.id,0]));for(let n=0;n<e.nodes.length;n++){let l=!1;for(let{from:o,to:s}of e.edges)r.has(o)&&!r.has(s)&&(r.set(s,r.get(o)+1),l=!0);if(!l)break}for(let{from:n,to:l}of e.edges)r.has(l)&&!r.has(n)&&r.set(n,Math.max(0,r.get(l)-1));return r}function Ht(e){let r=[],n=Bt(e);for(let d of e.nodes)(r[n.get(d.id)??0]??=[]).push(d);for(let d=0;d<r.length;d++)r[d]??=[];let o=Math.max(...r.map(d=>d.length))*(I.h+I.gap)+8,s=new Map;return r.forEach((d,i)=>d.forEach((c,u)=>{let $=o-d.length*(I.h+I.gap)+I.gap;s.set(c.id,{x:6+i*pt,y:$/2+u*(I.h+I.gap),node:c})})),{at:s,width:(r.length-1)*pt+I.w+18,height:o}}var Ot=(e,r)=>e.role==="cause"?p.prob(r.confidence):e.role==="silent"?t("inc.quiet"):e.count>1?t("inc.reports_of",{n:e.reporting,of:e.count}):t(`role.${e.role}`),ge=e=>e.count>1&&e.label===`${e.count} ${e.kind}`?`${e.count} × ${D("part",e.kind)}`:e.label||e.id,qt=e=>e.length>ct?`${e.slice(0,ct-1)}…`:e,gt=e=>e<1e3?`${p.fixed(e/1e3,1)} ${t("unit.s")}`:p.dur(e/1e3);function mt({graph:e,cause:r}){let{at:n,width:l,height:o}=Ht(e);return a`<div class="graph">
    <svg viewBox=${`0 0 ${l} ${o}`} style=${{maxWidth:`${l*1.06}px`}} role="img" aria-label=${Ft(e)}>
      ${e.edges.map(s=>{let[d,i]=[n.get(s.from),n.get(s.to)];if(!d||!i)return null;let c=d.node.role==="silent"||i.node.role==="silent",[u,$,b,w]=[d.x+I.w,d.y+I.h/2,i.x,i.y+I.h/2],g=(u+b)/2;return a`<g class=${E("edge",c&&"quiet")}><path d=${`M${u} ${$}C${g} ${$} ${g} ${w} ${b} ${w}`} />${!c&&s.lag_seconds>0&&a`<text x=${b-5} y=${w-5} text-anchor="end">${gt(s.lag_seconds*1e3)}</text>`}</g>`})}
      ${[...n.values()].map(({x:s,y:d,node:i})=>a`<g class=${`node ${i.role}`} transform=${`translate(${s} ${d})`}>
        ${i.count>1&&a`<rect x="4" y="-4" width=${I.w} height=${I.h} rx="6" class="behind" />`}
        <rect width=${I.w} height=${I.h} rx="6" class="front" />
        <title>${ge(i)}</title><text x="10" y="19" class="name">${qt(ge(i))}</text>
        <text x="10" y="35" class="note">${Ot(i,r)}</text>
      </g>`)}
    </svg>
    <details class="as-text"><summary>${t("inc.as_text")}</summary><ol>${e.edges.map(s=>a`<li><span class="mono">${ft(e,s.from)}</span> → <span class="mono">${ft(e,s.to)}</span> <span class="dim">${D("link",s.kind)}${s.lag_seconds>0?`, ${gt(s.lag_seconds*1e3)}`:""}</span></li>`)}</ol></details>
  </div>`}var ft=(e,r)=>ge(e.nodes.find(n=>n.id===r)??{id:r}),Ft=e=>e.nodes.map(r=>`${ge(r)}: ${t(`role.${r.role}`)}`).join("; ");var fe={right:["done","ok"],cause:["failed","warning"],no_incident:["later","out"]},Lt=8,Ut=150,ut=({correction:e})=>e?.verdict&&a`<span class="judged"><${A} kind=${fe[e.verdict][0]} token=${fe[e.verdict][1]} size=${11} label=${t(`cor.${e.verdict}`)} /></span>`;function Kt(e){let[r,n]=v([]);return N(()=>{let l=!0,o=e.trim().length>1&&setTimeout(()=>le(`resources?limit=${Lt}&find=${encodeURIComponent(e.trim())}`).then(({items:s})=>{l&&n(s.map(d=>d.name))},()=>{}),Ut);return()=>{l=!1,clearTimeout(o)}},[e]),r}function Wt({incident:e,verdict:r,onClose:n}){let l=F(n),o=e.correction?.verdict?e.correction:null,s=e.alternatives[0],d=o?.verdict==="cause"?o:s,[i,c]=v(r),[u,$]=v(d?.resource??""),[b,w]=v(d?.fault??""),[g,z]=v(o?.note??""),[C,m]=v(null),[f,_]=v(!1),V=y("faults").data?.items??[],h=Kt(u);j({modal:!0,Escape:n});let te=[e.root_cause.fault!=="unknown"&&"right","cause","no_incident"].filter(Boolean),me=S=>{S.preventDefault(),_(!0),G(`incidents/${encodeURIComponent(e.id)}/corrections`,{verdict:i,note:g,...i==="cause"?{resource:u,fault:b}:{}}).then(n,jt=>{_(!1),m(jt)})},At=[...new Set([...e.alternatives.map(S=>S.resource),...h])];return a`<dialog class="ask" ref=${l} aria-labelledby="correct-title"><form onSubmit=${me}>
    <h2 id="correct-title">${t("cor.ask")}</h2>
    <p class="text-2">${t("cor.said",{resource:e.root_cause.resource,fault:ie(e.root_cause),p:p.prob(e.root_cause.confidence)})}</p>
    <div class="form">
      <${Q} label=${t("cor.verdict")} value=${i} options=${te.map(S=>[S,t(`cor.${S}`)])} onChange=${c} />
      ${i==="cause"&&a`
        <label for="cor-resource">${t("cor.resource")}</label><input id="cor-resource" class="field mono" list="cor-names" required maxlength="300" spellcheck="false" autocomplete="off" value=${u} onInput=${S=>$(S.target.value)} /><datalist id="cor-names">${At.map(S=>a`<option value=${S}></option>`)}</datalist>
        <label for="cor-fault">${t("cor.fault")}</label><select id="cor-fault" class="field" required value=${b} onChange=${S=>w(S.target.value)}><option value="" disabled>${t("cor.choose")}</option>${V.map(S=>a`<option value=${S.fault} selected=${S.fault===b}>${de(S.title,S.fault)}</option>`)}<option value="unknown" selected=${b==="unknown"}>${t("cor.other")}</option></select>`}
      <label for="cor-note">${t("cor.note")}</label><textarea id="cor-note" class="field" rows="3" maxlength="2000" value=${g} onInput=${S=>z(S.target.value)}></textarea>
    </div>
    ${C&&a`<p class="c-critical" role="alert">${C.message} ${C.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${n}>${t("act.back")}</button><button class="btn primary" disabled=${f}>${t("cor.save")}</button></footer>
  </form></dialog>`}function ht({incident:e}){let[r,n]=v(null),[l,o]=v(null),s=ce("correct"),d=Z(),i=e.correction?.verdict?e.correction:null;if(e.merged_into)return null;let c=b=>G(`incidents/${encodeURIComponent(e.id)}/corrections`,{verdict:b}).then(()=>o(null),o),u=!!s,$=(b,w,g)=>a`<button class=${g?"btn primary":"btn"} disabled=${u} title=${s??void 0} onClick=${w}>${b}</button>`;return a`<${k} title=${t("cor.title")} id="verdict">
    ${i?a`<p class="verdict"><${A} kind=${fe[i.verdict][0]} token=${fe[i.verdict][1]} size=${13} /> <b>${t(`cor.is.${i.verdict}`)}</b></p>
      ${i.verdict==="cause"&&a`<p><${U} id=${i.resource} /> <span class="dim">${i.fault==="unknown"?t("cor.other"):d(i.fault)}</span></p>`}
      ${i.note&&a`<p class="text-2 cor-note">${i.note}</p>`}
      <p class="dim">${t("cor.by",{who:i.author,when:p.stamp(Date.parse(i.time))})}</p>`:a`<p class="text-2">${t("cor.none")}</p>`}
    <div class="decide">
      ${i?a`${$(t("cor.change"),()=>n(i.verdict))}${$(t("cor.withdraw"),()=>c("withdrawn"))}`:a`${e.root_cause.fault!=="unknown"&&$(t("cor.right"),()=>c("right"))}${$(t("cor.cause"),()=>n("cause"))}${$(t("cor.no_incident"),()=>n("no_incident"))}`}
      ${s&&a`<p class="dim">${s}</p>`}
    </div>
    ${l&&a`<p class="c-critical" role="alert">${l.message} ${l.hint}</p>`}
    ${r&&a`<${Wt} incident=${e} verdict=${r} onClose=${()=>n(null)} />`}
  <//>`}var Xt=50,we=e=>Math.sign(e)*Math.log10(1+Math.abs(e)/Xt),Vt=[-6e4,-1e4,-1e3,0,100,1e3,1e4,6e4,6e5],ye=20,ke=24,xt=e=>e.map(r=>{let n=r.offsets.map(l=>l*1e3);return{...r,points:n,first:Math.min(...n),last:Math.max(...n),repeats:r.role==="repeat"}}).filter(r=>r.points.length>0),ze=(e,r)=>!!(e?.includes(r.id)||e?.includes(r.type));function Gt(e,r){let n=Math.min(0,...e.map(i=>i.first-r)),l=Math.max(1e3,...e.map(i=>i.last-r)),[o,s]=[we(n),we(l)],d=i=>1.5+(we(i-r)-o)/(s-o)*97;return{x:d,marks:Vt.filter(i=>i>=n&&i<=l).map(i=>({at:d(r+i),text:i===0?"0":`${i<0?"−":""}${Math.abs(i)<1e3?`${Math.abs(i)/1e3}`:p.dur(Math.abs(i)/1e3)}${Math.abs(i)<1e3?` ${t("unit.s")}`:""}`}))}}function vt({lanes:e,zero:r,lit:n}){let[l,o]=v(null),{x:s,marks:d}=Gt(e,r);return a`<div class="lanes">
    <div class="lane axis" aria-hidden="true"><span></span><span></span><div class="track">${d.map(i=>a`<i style=${{left:`${i.at}%`}}>${i.text}</i>`)}</div></div>
    <ul>
      ${e.map(i=>{let c=i.id,u=ze(n,i),$=l===c;return a`<li class=${E("lane-item",u&&"lit",i.repeats&&"repeat",i.role==="cause"&&"cause")}>
          <button class="lane" aria-expanded=${$?"true":"false"} onClick=${()=>o($?null:c)}>
            <span class="lane-name"><${A} kind=${P(i.severity)} token=${i.severity==="info"?"out":void 0} size=${11} label=${t(`severity.${i.severity}`)} /><span class="mono">${i.type}</span><small class="dim">${i.code}</small></span>
            <b class="num">${i.count}</b>
            <svg class="track" viewBox=${`0 0 100 ${ye}`} preserveAspectRatio="none" aria-hidden="true">
              ${d.map(b=>a`<line x1=${b.at} x2=${b.at} y1="0" y2=${ye} class="mark" />`)}
              ${i.points.map(b=>a`<line x1=${s(b)} x2=${s(b)} y1="4" y2=${ye-4} class="tick" />`)}
            </svg>
          </button>
          ${$&&a`<div class="lane-open"><p>${i.message&&`“${i.message}” `}<span class="dim">${i.source}${i.repeats?` ${t("inc.repeat")}`:""}</span></p><p class="chips">${(i.resources??[]).slice(0,ke).map(b=>a`<${U} id=${b} />`)}${i.resources?.length>ke&&a`<span class="dim">${t("more",{n:i.resources.length-ke})}</span>`}</p></div>`}
        </li>`})}
    </ul>
  </div>`}function Zt({incident:e}){let r=L(1e3),n=e.root_cause,l=((e.closed?Date.parse(e.closed):r)-Date.parse(e.opened))/1e3;return a`<header class="incident-head">
    <p class="crumbs"><a href=${M("incidents")}>${t("inc.title")}</a> / <span class="mono">${e.id}</span> <span class=${`pill c-${P(e.severity)}`}>${t(`inc.${e.status}`)}</span></p>
    <h1><${A} kind=${P(e.severity)} size=${18} label=${D("severity",e.severity)} />${R(e)}</h1>
    ${e.merged_into&&a`<p class="text-2"><a href=${M(`incidents/${e.merged_into}`)}>${t("inc.merged_into",{id:e.merged_into})}</a></p>`}
    ${e.external&&a`<p class="c-warning">${t("inc.external")}</p>`}
    <dl class="facts-line">
      <div><dt>${t("inc.cause")}</dt><dd><${U} id=${n.resource} /> <span class="dim">${ie(n)}</span></dd></div>
      <div><dt>${t("inc.confidence")}</dt><dd><${Y} p=${n.confidence} wide /></dd></div>
      <div><dt>${t("inc.opened")}</dt><dd class="num">${p.clock(Date.parse(e.opened))} <span class="dim">UTC</span></dd></div>
      <div><dt>${t("inc.lasts")}</dt><dd class="num">${p.dur(l)}</dd></div>
      <div><dt>${t("inc.fold_line")}</dt><dd class="num">${t("inc.folded",{alerts:e.alerts})}</dd></div>
      <div><dt>${t("inc.servers")}</dt><dd class="num">${t("inc.affects",{servers:e.affected.length,jobs:e.workloads.length})}</dd></div>
    </dl>
  </header>`}function Jt({incident:e,lanes:r,lit:n,onLit:l}){let o=(e.sentences??[]).map(s=>({...s,text:ae(s)}));return o.length===0||o.some(s=>!s.text)?a`<p class="lead why-text">${de(e.explanations,e.explanation)}</p>`:a`<ol class="why">${o.map(s=>{let d=s.count||r.filter(i=>ze(s.lanes,i)).reduce((i,c)=>i+c.count,0);return a`<li onMouseEnter=${()=>l(s.lanes)} onMouseLeave=${()=>l(null)}>
      <span>${s.text}</span>${d>0&&a`<button class=${`count num${n===s.lanes?" on":""}`} aria-label=${`${t("inc.evidence")}: ${d}`} onFocus=${()=>l(s.lanes)} onBlur=${()=>l(null)}>${d}</button>`}
    </li>`})}</ol>`}var Qt=({items:e,cause:r})=>a`<ul class="alternatives">
  ${[r,...e].map((n,l)=>a`<li class=${l===0?"chosen":""}><span class="alt-bar" aria-hidden="true"><i style=${{width:`${Math.max(1,n.confidence*100)}%`}}></i></span><span class="mono">${n.resource}</span><b class="num">${p.prob(n.confidence)}</b><p class="dim">${ie(n)}</p></li>`)}
</ul>`,$t=({title:e,items:r})=>r?.length>0?a`<h3 class="why-head">${e}</h3><ul class="why">${r.map(n=>a`<li><span>${ae(n)}</span></li>`)}</ul>`:null,Yt=({items:e})=>a`<table class="table tight"><tbody>${e.map(r=>a`<tr>
  <td><a href=${M(`incidents/${r.id}`)}>${p.stamp(Date.parse(r.opened))}</a></td><td class="mono wrap">${r.resource}</td><td class="dim">${t(`inc.match.${r.match}`)}</td>
  <td class="dim">${r.cured_by.length?`${t("inc.cured_by")} ${r.cured_by.map(n=>D("rung",n)).join(", ")}`:t("inc.not_cured")}</td></tr>`)}</tbody></table>`;function ea({incident:e}){let r=y(`actions?incident=${encodeURIComponent(e.id)}`);return a`<${H} of=${r}>${({items:n})=>{let l=Ye(n),o=e.recommendation;return a`<div class="actions-list">
      ${l.map((s,d)=>a`<${et} key=${s.id} action=${s} first=${d===0} />`)}
      ${o&&!l.some(s=>s.kind===o.action)&&a`<article class="action"><header><${A} kind="person" token="text" size=${13} /><h3>${ae(e.step,Je(o.action,o.target))}</h3><span class="dim">${t("act.recommended")}</span></header></article>`}
      ${e.no_step&&a`<article class="action"><header><${A} kind="skipped" token="out" size=${13} /><h3>${ae(e.no_step.sentence,e.no_step.reason)}</h3></header></article>`}
      ${l.length===0&&!o&&!e.no_step&&a`<${B} title=${t("act.none")} />`}
    </div>`}}<//>`}function bt({id:e}){let r=y(`incidents/${encodeURIComponent(e)}`),[n,l]=v(null),[o,s]=v(!1),d=O(()=>xt(r.data?.lanes??[]),[r.data]);return j({e:()=>s(i=>!i)}),a`<${H} of=${r} height=${500}>${i=>a`
    <${Zt} incident=${i} />
    <div class="incident-grid">
      <div class="todo"><${k} title=${t("inc.todo")} id="todo"><${ea} incident=${i} /><//></div>
      <div class="column">
        <${k} title=${t("inc.why")} id="why"><${Jt} incident=${i} lanes=${d} lit=${n} onLit=${l} />
          <${$t} title=${t("inc.against")} items=${i.against} /><${$t} title=${t("inc.would_change")} items=${i.would_change} /><//>
        ${d.length>0?a`<${k} title=${t("inc.evidence")} id="evidence" aside=${a`<span class="dim">${t("inc.axis")}</span>`} flush>${!o&&a`<${vt} lanes=${d} zero=${ta(d)} lit=${n} />`}<//>`:a`<${k}><${B} title=${t("inc.no_detail")} /><//>`}
        ${i.graph?.nodes?.length>0&&a`<${k} title=${t("inc.graph")} id="graph"><${mt} graph=${i.graph} cause=${i.root_cause} /><//>`}
      </div>
      <div class="column side">
        <${k} title=${t("inc.alternatives")} id="alternatives"><${Qt} items=${i.alternatives} cause=${i.root_cause} /><//>
        <${ht} incident=${i} />
        ${i.similar?.length>0&&a`<${k} title=${t("inc.similar")} id="similar" flush><${Yt} items=${i.similar} /><//>`}
        ${i.holders?.length>0&&a`<${k} title=${t("inc.holders")} id="holders" flush><table class="table tight"><tbody>${i.holders.map(c=>a`<tr><td>${c.team||c.user}</td><td>${c.purpose||"–"}</td><td class="r num">${c.servers.length>2?t("inc.affects",{servers:c.servers.length,jobs:0}):c.servers.join(", ")}</td></tr>`)}</tbody></table><//>`}
        ${i.jobs?.length>0&&a`<${k} title=${t("inc.jobs")} id="jobs" flush><table class="table tight"><tbody>${i.jobs.map(c=>a`<tr><td class="mono">${c.id}</td><td>${c.tenant||"–"}</td><td class="r num">${c.gpus>0?`${c.gpus} GPU`:""}</td></tr>`)}</tbody></table><//>`}
      </div>
    </div>`}<//>`}function ta(e){let r=e.filter(n=>n.role==="cause");return Math.min(...(r.length?r:e).map(n=>n.first))}var wt={open:["waiting","action"],accepted:["done","ok"],declined:["failed","out"],withdrawn:["later","out"]},kt=e=>e?e.split(">").map(r=>{let[n,l]=r.trim().split(":");return t(`edge.step.${n}`,{kind:D("part",l).replace(/^[A-Z](?=[a-z])/,o=>o.toLowerCase())})}).join(" → "):t("edge.itself"),_e=3,yt=1e3,aa=e=>e>yt?`> ${p.num(yt)}`:p.num(e),Me=e=>e.decision?.fault&&e.causes.find(r=>r.fault===e.decision.fault&&(r.way??"")===(e.decision.way??""))||e.causes[0];function ra({proposal:e,decision:r,onClose:n,onDone:l}){let o=F(n),[s,d]=v(Me(e)?.fault??""),[i,c]=v(""),[u,$]=v(null),[b,w]=v(!1),g=Z();j({modal:!0,Escape:n});let z=r==="accepted",C=e.causes.find(f=>f.fault===s)??Me(e);return a`<dialog class="ask" ref=${o} aria-labelledby="edge-title"><form onSubmit=${f=>{f.preventDefault(),w(!0),G(`learning/edges/${encodeURIComponent(e.id)}/decisions`,{decision:r,reason:i,...z?{fault:s}:{}}).then(l,_=>{w(!1),$(_)})}}>
    <h2 id="edge-title">${t(`edge.ask.${r}`)}</h2>
    <p class="mono">${e.cause} → ${e.effect}</p>
    <p class="text-2">${t(`edge.means.${r}`)}</p>
    <div class="form">
      ${z&&a`<label for="edge-fault">${t("edge.fault")}</label><select id="edge-fault" class="field" value=${s} onChange=${f=>d(f.target.value)}>${e.causes.map(f=>a`<option value=${f.fault} selected=${f.fault===s}>${g(f.fault)}</option>`)}</select>
        <p class="dim">${t("edge.force",{where:kt(C.way),shows:p.prob(C.shows),share:p.prob(C.share),lag:p.dur(C.lag_s)})}</p>`}
      <label for="edge-reason">${t("edge.reason")}</label><textarea id="edge-reason" class="field" rows="3" required maxlength="1000" value=${i} onInput=${f=>c(f.target.value)}></textarea>
    </div>
    ${u&&a`<p class="c-critical" role="alert">${u.message} ${u.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${n}>${t("act.back")}</button><button class="btn primary" disabled=${b}>${t(`edge.do.${r}`)}</button></footer>
  </form></dialog>`}function ia({cause:e}){return a`<details><summary>${t("edge.examples",{n:e.examples.length})}</summary><div class="scroll"><table class="table tight"><thead><tr><th>${t("edge.when")}</th><th>${t("edge.part")}</th><th class="r">${t("edge.shown")}</th><th class="r">${t("edge.lag")}</th><th class="ids">${t("edge.events")}</th></tr></thead>
    <tbody>${[...e.examples].reverse().map(r=>a`<tr><td class="num">${p.stamp(Date.parse(r.time))}</td><td><${U} id=${r.part} /></td><td class="r num">${t("pre.said_of",{hits:r.shown,ended:r.of})}</td><td class="r num">${p.dur(r.lag_s)}</td><td class="mono dim ids" title=${[r.event,...r.effects].join(`
`)}>${[r.event,...r.effects].slice(0,_e).join(", ")}${r.effects.length>=_e?` ${t("more",{n:r.effects.length+1-_e})}`:""}</td></tr>`)}</tbody></table></div></details>`}function oa({proposal:e,denied:r,onAsk:n}){let l=Z(),o=Me(e),s=e.decision,d=(i,c)=>a`<button class=${E("btn small",c&&"primary")} disabled=${!!r} title=${r??void 0} onClick=${()=>n(e,i)}>${t(`edge.do.${i}`)}</button>`;return a`<li class="edge"><p class="verdict"><${A} kind=${wt[e.state][0]} token=${wt[e.state][1]} size=${13} label=${t(`edge.is.${e.state}`)} /> <b class="mono">${e.cause} → ${e.effect}</b> <span class="dim">${t(`edge.is.${e.state}`)}</span></p>
    ${o?a`<p>${t("edge.says",{fault:l(o.fault),where:kt(o.way),shown:p.num(o.shown),cases:p.num(o.cases),lag:p.dur(o.lags_sum_s/Math.max(1,o.shown))})}</p>
      <p class="text-2">${t("edge.lift",{lift:aa(o.lift),chance:o.chance<.001?`< ${p.pct(.001,1)}`:p.pct(o.chance,1),events:p.num(e.events),from:p.day(Date.parse(e.from)),to:p.day(Date.parse(e.to))})}</p>`:a`<p class="c-warning">${t("edge.no_cause")}</p>`}
    ${s&&a`<p class="text-2 cor-note">${s.reason}</p><p class="dim">${t("cor.by",{who:s.author,when:p.stamp(Date.parse(s.time))})}${s.version>0?` · ${t("edge.version",{version:s.version})}`:""}</p>`}
    ${o&&a`<${ia} cause=${o} />`}
    <div class="decide">${e.state==="accepted"?d("withdrawn"):a`${o&&d("accepted",e.state==="open")}${e.state!=="declined"&&d("declined")}`}</div></li>`}function zt(){let e=y("learning/edges"),r=ce("correct"),[n,l]=v(null);if(e.error?.status===503)return null;let o=()=>{l(null),e.reload()},s=(e.data?.items??[]).filter(d=>d.state==="open").length;return a`<${k} title=${t("edge.title")} id="edges" aside=${s>0&&a`<span class="dim">${t("edge.open",{n:s})}</span>`}><${H} of=${e}>${({items:d})=>d.length===0?a`<p class="lead">${t("edge.none")}</p><p class="dim">${t("edge.none_hint")} <code>auspex learn edges -c auspex.yaml</code></p>`:a`<p class="text-2">${t("edge.lead")}</p>${r&&a`<p class="dim">${r}</p>`}<ul class="edges">${d.map(i=>a`<${oa} key=${i.id} proposal=${i} denied=${r} onAsk=${(c,u)=>l([c,u])} />`)}</ul>`}<//>
    ${n&&a`<${ra} proposal=${n[0]} decision=${n[1]} onClose=${()=>l(null)} onDone=${o} />`}<//>`}var J=200,_t=.05,X={left:38,bottom:26,top:8,right:8},K=e=>X.left+e*(J-X.left-X.right),W=e=>J-X.bottom-e*(J-X.top-X.bottom);function na({bins:e}){let r=e.filter(o=>o.n>0),n=Math.max(1,...r.map(o=>o.n)),l=r.map(o=>t("his.bin",{from:p.num(o.from*100),to:p.pct(o.to),right:o.right,n:o.n})).join("; ");return a`<svg class="curve" viewBox=${`0 0 ${J} ${J}`} role="img" aria-label=${`${t("his.curve")}: ${l}`}>
    ${[0,.5,1].map(o=>a`<line class="tick" x1=${K(0)} x2=${K(1)} y1=${W(o)} y2=${W(o)} /><text x=${X.left-5} y=${W(o)+3} text-anchor="end">${p.num(o*100)}</text><text x=${K(o)} y=${J-X.bottom+13} text-anchor="middle">${p.num(o*100)}</text>`)}
    <line class="ideal" x1=${K(0)} y1=${W(0)} x2=${K(1)} y2=${W(1)} />
    <polyline class="path" points=${r.map(o=>`${K(o.confidence)},${W(o.right/o.n)}`).join(" ")} />
    ${r.map(o=>a`<circle cx=${K(o.confidence)} cy=${W(o.right/o.n)} r=${2.5+4.5*Math.sqrt(o.n/n)}><title>${t("his.bin",{from:p.num(o.from*100),to:p.pct(o.to),right:o.right,n:o.n})}</title></circle>`)}
    <text class="axis" x=${K(.5)} y=${J-2} text-anchor="middle">${t("his.said")}</text><text class="axis" x=${-W(.5)} y="8" transform="rotate(-90)" text-anchor="middle">${t("his.true")}</text>
  </svg>`}function sa(e){let r=e.reduce((o,s)=>o+s.n,0);if(r===0)return"";let n=e.reduce((o,s)=>o+(s.confidence??0)*s.n,0)/r,l=e.reduce((o,s)=>o+s.right,0)/r;return t(n-l>_t?"his.over":l-n>_t?"his.under":"his.fits",{said:p.pct(n),right:p.pct(l)})}var Se=e=>e==null?"–":e<1?t("his.at_once"):p.dur(e);function Mt(){let e=y("incidents/record"),r=Z();return a`<${k} title=${t("his.title")} id="hindsight" aside=${e.data&&a`<span class="dim">${t("his.judged",{judged:e.data.judged,closed:e.data.closed})}</span>`}><${H} of=${e}>${n=>{if(n.judged===0)return a`<p class="lead">${t("his.none")}</p><p class="dim">${t("his.none_hint")}</p>`;let l=[[p.pct(n.right/n.judged),"his.rate",t("his.rate_tip",n)],[Se(n.seconds_p50),"his.p50"],[Se(n.seconds_p95),"his.p95"],[n.calibration_error==null?"–":p.fixed(n.calibration_error,2),"his.error",t("his.error_tip")],[p.num(n.no_incident),"his.no_incident"]];return a`<p class=${E("lead",!n.enough&&"c-warning")}>${t(n.enough?"his.verdict":"his.too_few",n)}</p>
    <div class=${E("hindsight",!n.enough&&"few")}>
      <dl class="big">${l.map(([o,s,d])=>a`<div title=${d}><dd class="num">${o}</dd><dt>${t(s)}</dt></div>`)}</dl>
      <figure><figcaption>${t("his.curve")}</figcaption><${na} bins=${n.bins} />${n.enough&&a`<p>${sa(n.bins)}</p>`}<p class="dim">${t("his.how")}</p></figure>
      <div class="scroll"><table class="table tight"><thead><tr><th>${t("his.fault")}</th><th class="r">${t("his.right")}</th><th class="r">${t("his.took")}</th></tr></thead><tbody>${n.faults.map(o=>a`<tr><td>${o.fault===""?t("cor.no_incident"):o.fault==="unknown"?t("cor.other"):r(o.fault)}</td><td class="r num">${t("pre.said_of",{hits:o.right,ended:o.n})}</td><td class="r num">${Se(o.seconds_p50)}</td></tr>`)}</tbody></table></div>
    </div>
    <p class="dim">${n.parameters>0?t("his.learned",{version:n.parameters}):t("his.unlearned")}</p>`}}<//><//>`}var la=["open","repair","closed","all"];function St({query:e}){let r=y("incidents"),n=L(5e3),l=e.get("status")??"all",o=(r.data?.items??[]).filter(i=>l==="all"?i.status!=="merged":i.status===l),[s,d]=v(0);return j({j:()=>d(i=>Math.min(o.length-1,i+1)),k:()=>d(i=>Math.max(0,i-1)),Enter:()=>o[s]&&T(`incidents/${o[s].id}`)}),a`<h1>${t("inc.title")}</h1>
    <${k} title=${t("inc.what")} id="list" flush aside=${a`<${Q} label=${t("map.state")} value=${l} options=${la.map(i=>[i,t(i==="all"?"all":`inc.${i}`)])} onChange=${i=>{d(0),re({status:i==="all"?null:i})}} />`}>
      <${H} of=${r}>${()=>o.length===0?a`<${B} title=${t("inc.none")} />`:a`<div class="scroll"><table class="table">
        <thead><tr><th></th><th>${t("inc.what")}</th><th>${t("inc.cause")}</th><th>${t("inc.confidence")}</th><th class="r">${t("inc.alerts")}</th><th class="r">${t("inc.servers")}</th><th class="r">${t("inc.lasts")}</th><th>${t("map.state")}</th></tr></thead>
        <tbody>${o.map((i,c)=>a`<tr class=${E("row",c===s&&"selected")} onClick=${()=>T(`incidents/${i.id}`)}>
          <td><${A} kind=${i.status==="closed"?"done":P(i.severity)} token=${i.status==="closed"?"out":void 0} label=${D("severity",i.severity)} /></td>
          <td class="wrap"><a href=${M(`incidents/${i.id}`)}>${R(i)}</a></td><td class="mono">${i.root_cause.resource}</td><td><${Y} p=${i.root_cause.confidence} /></td>
          <td class="r num">${i.alerts}</td><td class="r num">${i.affected.length}</td><td class="r num">${p.dur(((i.closed?Date.parse(i.closed):n)-Date.parse(i.opened))/1e3)}</td><td>${t(`inc.${i.status}`)} <${ut} correction=${i.correction} /></td></tr>`)}</tbody></table></div>`}<//>
    <//>
    <${Mt} />
    <${zt} />`}var da=5e3;function pa(){let e=y("login-methods",{every:da}).data?.oidc,r=Pe();return a`${r&&a`<p class="c-critical" role="alert">${t(`login.error.${r}`)}</p>`}
    ${e&&(e.ready?a`<p><a class="btn primary" href=${De()} target="_self">${t("login.with",{name:e.name})}</a></p>`:a`<p class="c-warning" role="status">${t("login.away",{name:e.name})}</p>`)}`}function Ct(){let[e,r]=v(""),[n,l]=v(null),[o,s]=v(!1),d=async i=>{i.preventDefault();let c=e.trim(),u=/#login=([\w-]+)$/.exec(c)?.[1];s(!0);try{await ue(u?{code:u}:{code:c}).catch($=>{if(u||$.status!==401)throw $;return ue({token:c})})}catch($){l($)}s(!1)};return a`<div class="login"><p class="brand"><${pe} /><span>Auspex</span></p><${k} title=${t("login.title")} id="login">
    <${pa} />
    <p class="text-2">${t("login.hint")}</p>
    <form class="query" onSubmit=${d}>
      <label class="sr" for="secret">${t("login.secret")}</label>
      <input id="secret" class="field mono" type="password" autocomplete="off" placeholder=${t("login.secret")} value=${e} onInput=${i=>r(i.target.value)} />
      <button class="btn primary" disabled=${o||!e.trim()}>${t("login.enter")}</button>
    </form>
    ${n&&a`<p class="c-critical" role="alert">${n.message} ${n.hint}</p>`}
  <//></div>`}var ee=[["fleet","f"],["incidents","i"],["predictions","p"],["actions","a"],["allocations","l"],["inventory","v"],["agents","n"],["explore","e"]],ca=ee.filter(([e])=>e!=="inventory"&&e!=="explore"),oe=$e(()=>import("./plotted-C4QICFKE.js")),q=$e(()=>import("./managed-U4WVT5OV.js")),ga={servers:oe,explore:oe,actions:q,allocations:q,inventory:q,agents:q},fa=1e3;function ma({parts:e,query:r}){let[n="fleet",l]=e;return n==="fleet"?a`<${dt} query=${r} />`:n==="incidents"?l?a`<${bt} key=${l} id=${l} />`:a`<${St} query=${r} />`:n==="servers"&&l?a`<${oe.Page} page="DevicePage" key=${l} id=${l} query=${r} />`:n==="predictions"?a`<${rt} />`:n==="actions"?a`<${q.Page} page="ActionsPage" key="actions" />`:n==="allocations"?a`<${q.Page} page="AllocationsPage" key="allocations" query=${r} />`:n==="inventory"?a`<${q.Page} page="InventoryPage" key="inventory" query=${r} />`:n==="agents"?a`<${q.Page} page="AgentsPage" key="agents" />`:n==="explore"?a`<${oe.Page} page="ExplorePage" key="explore" query=${r} />`:a`<h1>${t("missing.title")}</h1><p>${t("missing.hint")}</p>`}var ua={fleet:"M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z",incidents:"M8 1.5 14.5 8 8 14.5 1.5 8Z",predictions:"M1.5 11C5 11 6 4 14.5 3M9 3h5.5v5.5",actions:"M3 2.5v11L13.5 8Z",allocations:"M2 2h12v12H2zM2 8h12M8 8v6",inventory:"M8 1.5 14 4.5v7L8 14.5 2 11.5v-7zM2 4.5l6 3 6-3M8 7.5v7",agents:"M2 3h12v4H2zM2 9h12v4H2zM4.5 5h.01M4.5 11h.01"},ha=({name:e})=>a`<svg width="18" height="18" viewBox="0 0 16 16" aria-hidden="true"><path d=${ua[e]} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round" /></svg>`;function xa(){let e=he();return a`<span class=${`link is-${e.state}`} role="status"><i aria-hidden="true"></i><span>${t(`shell.${e.state}`)}</span></span>`}function va(){let e=he();return L(1e3),e.state!=="lost"?null:a`<p class="lost" role="alert">${t("shell.lost_text",{for:p.dur((Date.now()-e.last)/1e3)})}</p>`}var Et="docs/api";function $a({onClose:e}){let r=F(e);j({modal:!0,Escape:e,"?":e});let n=[["/","keys.find"],["j k","keys.move"],["Enter","keys.open"],["u","keys.back"],["n p","keys.problem"],["+ − 0","keys.zoom"],["a","keys.approve"],["d","keys.dry"],["e","keys.evidence"],["?","keys.this"],...ee.map(([l,o])=>[`g ${o}`,`nav.${l}`])];return a`<dialog class="ask" ref=${r} aria-labelledby="keys-title"><h2 id="keys-title">${t("keys.title")}</h2><dl class="keys">${n.map(([l,o])=>a`<dt>${l.split(" ").map(s=>a`<kbd>${s}</kbd>`)}</dt><dd>${t(o)}</dd>`)}</dl><footer><a class="btn" href=${M(Et)} target="_self">${t("pal.api")}</a><button class="btn" onClick=${e} autofocus>${t("close")}</button></footer></dialog>`}function ba(){let e=Fe(),r=Oe(),n=Ue(),[l,o]=v(null),s=y("me").data,d=y("actions?state=waiting&limit=100").data?.items.length??0,i=Ie(),c=(y("incidents").data?.items??[]).filter(m=>m.status==="open").length,u=Be.find(([m])=>m!==r),$=O(()=>[...ee.map(([m,f])=>({group:"pal.go",text:t(`nav.${m}`),keys:`g ${f}`,run:()=>T(m)})),{group:"pal.command",text:t("pal.theme"),run:ve},{group:"pal.command",text:t("login.out"),run:()=>G("logout").finally(()=>location.reload())},{group:"pal.go",text:t("pal.api"),run:()=>location.assign(M(Et))},{group:"pal.command",text:t("pal.language"),run:()=>xe(u[0])}],[r]),b=()=>o("palette");j({"/":b,"mod+k":b,"?":()=>o("keys"),u:()=>history.back(),...Object.fromEntries(ee.map(([m,f])=>[`g ${f}`,()=>T(m)]))});let w=e.parts[0]==="servers"&&e.parts[1]?"fleet":e.parts[0]??"fleet",g=ee.some(([m])=>m===w)?`nav.${w}`:"missing.title";if(N(()=>{document.title=`${c?`(${c}) `:""}${t(g)} · Auspex`},[g,c,r]),!i)return a`<main id="main" tabindex="-1"><${Ct} /></main>`;let z={incidents:c,actions:d},C=([m])=>a`<a href=${M(m)} class=${w===m?"on":""} aria-current=${w===m?"page":void 0}>${t(`nav.${m}`)}${z[m]>0&&a`<b class=${`badge ${m}`}>${z[m]}</b>`}</a>`;return a`
    <a class="skip" href="#main" onClick=${m=>{m.preventDefault(),document.getElementById("main").focus()}}>${t("nav.skip")}</a>
    <header class="topbar">
      <a class="brand" href=${M("fleet")} aria-label="Auspex"><${pe} /><span>Auspex</span></a>
      <nav aria-label=${t("nav.label")}>${ee.map(C)}</nav>
      <button class="finder" onClick=${b}><span>${t("shell.find")}</span><kbd>/</kbd></button>
      ${s&&a`<span class="mode" title=${t(`mode.${s.mode}.tip`)}>${t("mode.label")} <b>${t(`mode.${s.mode}`)}</b></span>`}
      <${xa} />
      <button class="icon" onClick=${()=>xe(u[0])} aria-label=${`${t("shell.language")}: ${u[1]}`} lang=${u[0]}>${u[0]==="zh"?a`<svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true"><path d="M2.5 4.5h11v5.2h-11zM8 1.2v13.6" fill="none" stroke="currentColor" stroke-width="1.6" /></svg>`:"EN"}</button>
      <button class="icon" onClick=${ve} aria-label=${t("shell.theme")}><svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.5" /><path d="M8 2a6 6 0 0 1 0 12Z" fill="currentColor" /></svg></button>
      <button class="icon wide-only" onClick=${()=>o("keys")} aria-label=${t("shell.keys")}>?</button>
    </header>
    <${va} />
    <main id="main" tabindex="-1">${ma(e)}</main>
    <nav class="tabs" aria-label=${t("nav.label")}>${ca.map(([m])=>a`<a href=${M(m)} class=${w===m?"on":""} aria-current=${w===m?"page":void 0}><${ha} name=${m} /><span>${t(`nav.${m}`)}</span>${z[m]>0&&a`<b class=${`badge ${m}`}>${z[m]}</b>`}</a>`)}</nav>
    ${l==="palette"&&a`<${it} onClose=${()=>o(null)} commands=${$} />`}
    ${l==="keys"&&a`<${$a} onClose=${()=>o(null)} />`}`}function wa(){let e=()=>oe.load().then(q.load);setTimeout(()=>window.requestIdleCallback?requestIdleCallback(e):e(),fa)}Le();Promise.all([He(),Te(),ga[qe()]?.load()]).then(()=>{Ne(),Ce(a`<${ba} />`,document.getElementById("app")),wa()});
