BEGIN TRANSACTION;
CREATE TABLE answers (
	id INTEGER NOT NULL,
	item_id INTEGER NOT NULL,
	pick_id INTEGER,
	annotator TEXT NOT NULL,
	at TEXT NOT NULL,
	kind TEXT NOT NULL,
	class_id INTEGER,
	comment TEXT,
	live BOOLEAN NOT NULL,
	undone BOOLEAN NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(item_id) REFERENCES items (id),
	FOREIGN KEY(pick_id) REFERENCES picks (id),
	FOREIGN KEY(class_id) REFERENCES classes (id)
);
INSERT INTO "answers" VALUES(1,1,NULL,'me','2026-11-15T15:12:44.589+00:00','label',2,NULL,1,0);
INSERT INTO "answers" VALUES(2,2,NULL,'me','2026-11-15T15:12:44.591+00:00','label',1,NULL,1,0);
INSERT INTO "answers" VALUES(3,3,NULL,'me','2026-11-15T15:12:44.592+00:00','label',1,NULL,1,0);
INSERT INTO "answers" VALUES(4,4,NULL,'me','2026-11-15T15:12:44.593+00:00','label',2,NULL,1,0);
INSERT INTO "answers" VALUES(5,5,1,'ann','2026-11-15T15:12:45.645+00:00','label',2,NULL,0,0);
INSERT INTO "answers" VALUES(6,12,2,'ann','2026-11-15T15:12:45.647+00:00','label',2,NULL,1,0);
INSERT INTO "answers" VALUES(7,23,3,'ann','2026-11-15T15:12:45.649+00:00','label',2,NULL,1,0);
INSERT INTO "answers" VALUES(8,18,4,'ann','2026-11-15T15:12:45.650+00:00','label',1,NULL,1,0);
INSERT INTO "answers" VALUES(9,5,NULL,'ann','2026-11-15T15:12:45.652+00:00','label',2,'seen twice',1,0);
INSERT INTO "answers" VALUES(10,13,5,'ann','2026-11-15T15:12:45.653+00:00','skip',NULL,NULL,1,0);
INSERT INTO "answers" VALUES(11,22,6,'ann','2026-11-15T15:12:45.655+00:00','unsure',NULL,'too blurred',1,0);
INSERT INTO "answers" VALUES(12,6,7,'ann','2026-11-15T15:12:45.657+00:00','bad',NULL,NULL,1,0);
INSERT INTO "answers" VALUES(13,12,NULL,'bob','2026-11-15T15:12:45.659+00:00','label',1,NULL,0,1);
CREATE TABLE batches (
	id INTEGER NOT NULL,
	campaign_id INTEGER NOT NULL,
	annotator TEXT NOT NULL,
	asked TEXT NOT NULL,
	strategy TEXT NOT NULL,
	seed INTEGER NOT NULL,
	model_version INTEGER NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
);
INSERT INTO "batches" VALUES(1,1,'ann','2026-11-15T15:12:45.641+00:00','ldm-s',0,0);
INSERT INTO "batches" VALUES(2,1,'ann','2026-11-15T15:12:46.382+00:00','ldm-s',0,1);
CREATE TABLE campaigns (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	created TEXT NOT NULL,
	settings TEXT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (name)
);
INSERT INTO "campaigns" VALUES(1,'colours','2026-11-15T15:12:44.566+00:00','{"kind": "features", "strategy": "ldm-s", "options": {}, "head": "linear", "control": 0.25, "audit": 3, "seed": 0, "cost": null, "budget": null, "instructions": "Is it dark?", "folder": null}');
CREATE TABLE classes (
	id INTEGER NOT NULL,
	campaign_id INTEGER NOT NULL,
	position INTEGER NOT NULL,
	name TEXT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (campaign_id, name),
	FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
);
INSERT INTO "classes" VALUES(1,1,0,'dark');
INSERT INTO "classes" VALUES(2,1,1,'light');
CREATE TABLE features (
	item_id INTEGER NOT NULL,
	vector BLOB NOT NULL,
	PRIMARY KEY (item_id),
	FOREIGN KEY(item_id) REFERENCES items (id)
);
INSERT INTO "features" VALUES(1,X'0000C03F0000003F00000000');
INSERT INTO "features" VALUES(2,X'000080BF000040BF000000C0');
INSERT INTO "features" VALUES(3,X'0000E0BF000000C00000C0BF');
INSERT INTO "features" VALUES(4,X'0000A03F0000403F0000E03F');
INSERT INTO "features" VALUES(5,X'000000000000003F00000040');
INSERT INTO "features" VALUES(6,X'0000803F0000003F0000803E');
INSERT INTO "features" VALUES(7,X'0000803E0000E03F000080BF');
INSERT INTO "features" VALUES(8,X'0000A03F0000403F000000C0');
INSERT INTO "features" VALUES(9,X'000000BF0000C03F0000803E');
INSERT INTO "features" VALUES(10,X'000000C00000A03F0000803F');
INSERT INTO "features" VALUES(11,X'0000C03F0000C0BF0000E0BF');
INSERT INTO "features" VALUES(12,X'0000C03F000000C00000803E');
INSERT INTO "features" VALUES(13,X'0000E0BF000040BF00000000');
INSERT INTO "features" VALUES(14,X'000080BE000000BF000000C0');
INSERT INTO "features" VALUES(15,X'000000C00000C0BF000000C0');
INSERT INTO "features" VALUES(16,X'0000403F000000000000403F');
INSERT INTO "features" VALUES(17,X'000080BF0000003F0000803F');
INSERT INTO "features" VALUES(18,X'000000BF000080BE00000040');
INSERT INTO "features" VALUES(19,X'0000A03F00000040000000BF');
INSERT INTO "features" VALUES(20,X'0000403F000000400000403F');
INSERT INTO "features" VALUES(21,X'0000C03F0000403F0000403F');
INSERT INTO "features" VALUES(22,X'000000BF0000C03F0000C0BF');
INSERT INTO "features" VALUES(23,X'0000803E0000803F0000C03F');
INSERT INTO "features" VALUES(24,X'00000000000000BF000040BF');
CREATE TABLE history (
	id INTEGER NOT NULL,
	campaign_id INTEGER NOT NULL,
	at TEXT NOT NULL,
	who TEXT NOT NULL,
	what TEXT NOT NULL,
	item TEXT,
	detail TEXT NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
);
INSERT INTO "history" VALUES(1,1,'2026-11-15T15:12:44.567+00:00','me','created',NULL,'{"kind": "features", "strategy": "ldm-s", "options": {}, "head": "linear", "control": 0.25, "audit": 3, "seed": 0, "cost": null, "budget": null, "instructions": "Is it dark?", "folder": null}');
INSERT INTO "history" VALUES(2,1,'2026-11-15T15:12:44.569+00:00','me','class',NULL,'{"name": "dark"}');
INSERT INTO "history" VALUES(3,1,'2026-11-15T15:12:44.569+00:00','me','class',NULL,'{"name": "light"}');
INSERT INTO "history" VALUES(4,1,'2026-11-15T15:12:44.583+00:00','me','added',NULL,'{"items": 24, "duplicates": 0}');
INSERT INTO "history" VALUES(5,1,'2026-11-15T15:12:44.590+00:00','me','answer','v0','{"answer": 1, "kind": "label", "label": "light", "comment": null}');
INSERT INTO "history" VALUES(6,1,'2026-11-15T15:12:44.591+00:00','me','answer','v1','{"answer": 2, "kind": "label", "label": "dark", "comment": null}');
INSERT INTO "history" VALUES(7,1,'2026-11-15T15:12:44.592+00:00','me','answer','v2','{"answer": 3, "kind": "label", "label": "dark", "comment": null}');
INSERT INTO "history" VALUES(8,1,'2026-11-15T15:12:44.593+00:00','me','answer','v3','{"answer": 4, "kind": "label", "label": "light", "comment": null}');
INSERT INTO "history" VALUES(9,1,'2026-11-15T15:12:44.595+00:00','me','audit',NULL,'{"items": ["v5", "v12", "v23"]}');
INSERT INTO "history" VALUES(10,1,'2026-11-15T15:12:45.643+00:00','ann','asked',NULL,'{"batch": 1, "strategy": "ldm-s", "version": 0, "items": ["v4", "v11", "v22", "v17", "v12", "v21", "v5", "v16"]}');
INSERT INTO "history" VALUES(11,1,'2026-11-15T15:12:45.646+00:00','ann','answer','v4','{"answer": 5, "kind": "label", "label": "light", "comment": null}');
INSERT INTO "history" VALUES(12,1,'2026-11-15T15:12:45.647+00:00','ann','answer','v11','{"answer": 6, "kind": "label", "label": "light", "comment": null}');
INSERT INTO "history" VALUES(13,1,'2026-11-15T15:12:45.649+00:00','ann','answer','v22','{"answer": 7, "kind": "label", "label": "light", "comment": null}');
INSERT INTO "history" VALUES(14,1,'2026-11-15T15:12:45.651+00:00','ann','answer','v17','{"answer": 8, "kind": "label", "label": "dark", "comment": null}');
INSERT INTO "history" VALUES(15,1,'2026-11-15T15:12:45.652+00:00','ann','answer','v4','{"answer": 9, "kind": "label", "label": "light", "comment": "seen twice"}');
INSERT INTO "history" VALUES(16,1,'2026-11-15T15:12:45.654+00:00','ann','answer','v12','{"answer": 10, "kind": "skip", "label": null, "comment": null}');
INSERT INTO "history" VALUES(17,1,'2026-11-15T15:12:45.655+00:00','ann','answer','v21','{"answer": 11, "kind": "unsure", "label": null, "comment": "too blurred"}');
INSERT INTO "history" VALUES(18,1,'2026-11-15T15:12:45.657+00:00','ann','answer','v5','{"answer": 12, "kind": "bad", "label": null, "comment": null}');
INSERT INTO "history" VALUES(19,1,'2026-11-15T15:12:45.659+00:00','bob','answer','v11','{"answer": 13, "kind": "label", "label": "dark", "comment": null}');
INSERT INTO "history" VALUES(20,1,'2026-11-15T15:12:45.663+00:00','bob','undo','v11','{"answer": 13}');
INSERT INTO "history" VALUES(21,1,'2026-11-15T15:12:45.961+00:00','ann','trained',NULL,'{"version": 1, "labels": 8, "classes": ["dark", "light"], "control": [0, 1], "audit": [0, 0]}');
INSERT INTO "history" VALUES(22,1,'2026-11-15T15:12:46.383+00:00','ann','asked',NULL,'{"batch": 2, "strategy": "ldm-s", "version": 1, "items": ["v12", "v6"]}');
CREATE TABLE items (
	id INTEGER NOT NULL,
	campaign_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	kind TEXT NOT NULL,
	content TEXT,
	digest TEXT NOT NULL,
	audit BOOLEAN NOT NULL,
	added TEXT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (campaign_id, "key"),
	FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
);
INSERT INTO "items" VALUES(1,1,'v0','features',NULL,'17ad9698ccfbcbfa0da6c72b7fe4cacf',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(2,1,'v1','features',NULL,'a1f2c0191c5392229013abcf301c7fe3',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(3,1,'v2','features',NULL,'62a8affb8b7eb7dcfe351e434129adee',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(4,1,'v3','features',NULL,'b8c1f0af7918e1ba0c7547758a8a9d76',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(5,1,'v4','features',NULL,'7af52d72f18ce9351d9aa49f76155097',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(6,1,'v5','features',NULL,'d651ae406e8e2304bb74dedfbd3619fd',1,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(7,1,'v6','features',NULL,'cf5f507640765f56d367605c7a776a4a',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(8,1,'v7','features',NULL,'d754661af3879b36e7d4012c289e58bf',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(9,1,'v8','features',NULL,'b2fe67a0025d822ad1902c18e817c10a',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(10,1,'v9','features',NULL,'16f6130f6cfdf3b1af68211153bfb3fb',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(11,1,'v10','features',NULL,'8b92c642f96848e1e2e7ffe758050164',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(12,1,'v11','features',NULL,'cbf3d4c3548ed413692940f646c0f396',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(13,1,'v12','features',NULL,'e23c9bfba06ba10b0aacc4092624355c',1,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(14,1,'v13','features',NULL,'9cff88cfb64e0ddf2cdcdd70b7da9be5',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(15,1,'v14','features',NULL,'07cf0b6c56968915c7170086144ee3cf',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(16,1,'v15','features',NULL,'10f69325eaa84084efa389f60faf3f4f',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(17,1,'v16','features',NULL,'4d2f676b792a5e1b7e639c12d9e594ef',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(18,1,'v17','features',NULL,'42f438bf3452bcf5c1a91c831593451f',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(19,1,'v18','features',NULL,'b52ca3a9225eb0043c3588fdba945a31',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(20,1,'v19','features',NULL,'2f6d23d2a3caa9009956242588134ab9',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(21,1,'v20','features',NULL,'871b6684a68a95b8c22f6f88439d677d',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(22,1,'v21','features',NULL,'3ae02dc2efa234c2494ae4e5072da106',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(23,1,'v22','features',NULL,'809bbc05b0217be289a3d0d35141809c',0,'2026-11-15T15:12:44.582+00:00');
INSERT INTO "items" VALUES(24,1,'v23','features',NULL,'d95f5c5d920c11d4cda67d3cf4e35c2f',1,'2026-11-15T15:12:44.582+00:00');
CREATE TABLE migrations (
	name TEXT NOT NULL,
	made TEXT NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO "migrations" VALUES('0001_tables','2026-11-15T15:12:44.557+00:00');
CREATE TABLE models (
	id INTEGER NOT NULL,
	campaign_id INTEGER NOT NULL,
	version INTEGER NOT NULL,
	trained TEXT NOT NULL,
	weights BLOB NOT NULL,
	facts TEXT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (campaign_id, version),
	FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
);
INSERT INTO "models" VALUES(1,1,1,'2026-11-15T15:12:45.960+00:00',X'78010000000000007B226C6162656C73223A7B226474797065223A22493634222C227368617065223A5B385D2C22646174615F6F666673657473223A5B302C36345D7D2C22706C61636573223A7B226474797065223A22493634222C227368617065223A5B385D2C22646174615F6F666673657473223A5B36342C3132385D7D2C227365656E223A7B226474797065223A22493634222C227368617065223A5B325D2C22646174615F6F666673657473223A5B3132382C3134345D7D2C2262696173223A7B226474797065223A22463332222C227368617065223A5B325D2C22646174615F6F666673657473223A5B3134342C3135325D7D2C22776569676874223A7B226474797065223A22463332222C227368617065223A5B322C335D2C22646174615F6F666673657473223A5B3135322C3137365D7D2C22707265646963746564223A7B226474797065223A22493136222C227368617065223A5B32345D2C22646174615F6F666673657473223A5B3137362C3232345D7D7D202020202001000000000000000000000000000000000000000000000001000000000000000100000000000000010000000000000000000000000000000100000000000000000000000000000001000000000000000200000000000000030000000000000004000000000000000B00000000000000110000000000000016000000000000000000000000000000010000000000000000000000042A253D0000000000000000000000004CCF803E9D02013E005D233E010000000000010001000100010001000100000000000100000000000000010000000100010001000100000001000000','{"labels": 8, "classes": ["dark", "light"], "control": [0, 1], "audit": [0, 0]}');
CREATE TABLE picks (
	id INTEGER NOT NULL,
	batch_id INTEGER NOT NULL,
	item_id INTEGER NOT NULL,
	rank INTEGER NOT NULL,
	arm TEXT NOT NULL,
	reason TEXT NOT NULL,
	state TEXT NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(batch_id) REFERENCES batches (id),
	FOREIGN KEY(item_id) REFERENCES items (id)
);
INSERT INTO "picks" VALUES(1,1,5,1,'picked','{}','answered');
INSERT INTO "picks" VALUES(2,1,12,2,'control','{}','answered');
INSERT INTO "picks" VALUES(3,1,23,3,'picked','{}','answered');
INSERT INTO "picks" VALUES(4,1,18,4,'picked','{}','answered');
INSERT INTO "picks" VALUES(5,1,13,5,'audit','{}','skipped');
INSERT INTO "picks" VALUES(6,1,22,6,'control','{}','answered');
INSERT INTO "picks" VALUES(7,1,6,7,'audit','{}','answered');
INSERT INTO "picks" VALUES(8,1,17,8,'picked','{}','open');
INSERT INTO "picks" VALUES(9,2,13,1,'audit','{"predicted": "dark", "probability": 0.6026}','open');
INSERT INTO "picks" VALUES(10,2,7,2,'picked','{"ldm": 0.09090909361839294, "predicted": "light", "probability": 0.5299}','open');
CREATE INDEX items_by_digest ON items (campaign_id, digest);
CREATE INDEX picks_by_item ON picks (item_id);
CREATE INDEX answers_by_item ON answers (item_id, annotator);
COMMIT;
